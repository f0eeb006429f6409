package lower

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// If a program's inputs are sharded along the first axis ([engine.HasRows]), each replica computes
// its rows of the values derived from them. Programs and plugins need not know about it: most
// operations compute rows from rows, a reduction over the first axis is completed by an all-reduce,
// and the operands of operations that need whole tensors are all-gathered.

// operation lowers an operation, each replica its own rows if an operand is known by rows.
func (e *evaluation) operation(id program.ID, n *program.Node) *graph.Node {
	whole := lists.Map(n.Args, func(a program.ID) *graph.Node { return asFloat(e.value(a)) })
	if !slices.ContainsFunc(whole, engine.HasRows) {
		return e.node(id, n, whole)
	}
	if rows, ok := e.rowsOf(id, n); ok {
		return engine.Gather(rows)
	}
	if across, reduces := acrossReplicas[n.Op]; reduces {
		return graph.AllReduce(e.node(id, n, []*graph.Node{engine.Rows(whole[0])}), across)
	}
	return e.node(id, n, whole)
}

// rows returns this replica's rows of a value. What does not depend on operands known by rows, such
// as a repeated number, is computed for these rows alone.
func (e *evaluation) rows(id program.ID) *graph.Node {
	if x := e.values[id]; x != nil && engine.HasRows(x) {
		return asFloat(engine.Rows(x))
	}
	if e.local[id] == nil {
		n := e.p.Node(id)
		ok := n != nil && n.Op != program.OpCall
		if ok {
			e.local[id], ok = e.rowsOf(id, n)
		}
		if !ok {
			e.local[id] = engine.Rows(asFloat(e.value(id)))
		}
	}
	return e.local[id]
}

// rowsOf computes this replica's rows of the result of an operation, if it can from rows.
func (e *evaluation) rowsOf(id program.ID, n *program.Node) (rows *graph.Node, ok bool) {
	byRows, ok := rowwise(e.p, n, e.g.Replicas())
	if !ok {
		return nil, false
	}
	args := make([]*graph.Node, len(n.Args))
	for i, a := range n.Args {
		if byRows[i] {
			args[i] = e.rows(a)
		} else {
			args[i] = asFloat(e.value(a))
		}
	}
	part := *n // the operation on the rows of one replica
	part.Type.Shape = slices.Clone(n.Type.Shape)
	part.Type.Shape[0] /= e.g.Replicas()
	if n.Op == program.OpSlice {
		part.Attr.Limit = slices.Clone(n.Attr.Limit)
		part.Attr.Limit[0] = part.Type.Shape[0]
	}
	return e.node(id, &part, args), true
}

// rowwise reports whether each replica can compute its rows of an operation's result from its rows
// of the operands marked in byRows and from the other operands as a whole.
func rowwise(p *program.Program, n *program.Node, replicas int) (byRows []bool, ok bool) {
	divides := func(t program.Type) bool { return len(t.Shape) > 0 && t.Shape[0]%replicas == 0 }
	if !divides(n.Type) {
		return nil, false
	}
	byRows = make([]bool, len(n.Args))
	operand := func(i int) program.Type { return p.TypeOf(n.Args[i]) }
	last := n.Type.Rank() - 1
	switch n.Op {
	case program.OpConstant:
		return byRows, len(n.Attr.Floats)+len(n.Attr.Ints) == 1
	case program.OpIota:
		return byRows, n.Attr.Axes[0] != 0
	case program.OpReshape: // rows are contiguous in memory
		byRows[0] = true
		return byRows, divides(operand(0))
	case program.OpBroadcast:
		axes := n.Attr.Axes
		byRows[0] = len(axes) > 0 && axes[0] == 0 && operand(0).Shape[0] == n.Type.Shape[0]
		return byRows, true
	case program.OpTranspose:
		byRows[0] = true
		return byRows, n.Attr.Axes[0] == 0
	case program.OpSlice:
		byRows[0] = true
		return byRows, n.Type.Shape[0] == operand(0).Shape[0]
	case program.OpConcatenate:
		for i := range byRows {
			byRows[i] = true
		}
		return byRows, n.Attr.Axes[0] != 0
	case program.OpReduceSum, program.OpReduceMax, program.OpReduceMin:
		byRows[0] = true
		return byRows, !slices.Contains(n.Attr.Axes, 0)
	case program.OpHadamard:
		byRows[0] = true
		return byRows, last > 0
	case program.OpTopK, program.OpOrderStatistic: // of each row of the last axis
		byRows[0] = true
		return byRows, operand(0).Rank() > 1 && operand(0).Shape[0] == n.Type.Shape[0]
	case program.OpNearest, program.OpLookup:
		byRows[0] = true
		return byRows, operand(0).Rank() > 0 && operand(0).Shape[0] == n.Type.Shape[0]
	case program.OpDot:
		a := n.Attr
		byRows[0], byRows[1] = true, true
		return byRows, len(a.LhsBatch) > 0 && a.LhsBatch[0] == 0 && a.RhsBatch[0] == 0
	}
	info, _ := n.Op.Info()
	switch info.Class {
	case program.ClassUnary, program.ClassBinary, program.ClassCompare, program.ClassElementwise,
		program.ClassGradient:
		for i := range byRows {
			t := operand(i)
			byRows[i] = t.Rank() == n.Type.Rank() && t.Shape[0] == n.Type.Shape[0]
		}
		return byRows, true
	}
	return nil, false
}

// acrossReplicas maps reductions to the operations that complete them across replicas.
var acrossReplicas = map[program.Op]string{
	program.OpReduceSum: graph.Sum,
	program.OpReduceMax: graph.Maximum,
	program.OpReduceMin: graph.Minimum,
}

// shardOfRows restricts a program over rows ([passes.Division]) to the rows of one of n replicas.
// ok is false if a row would be split between replicas, or if the program depends on row indices.
func shardOfRows(p *program.Program, rows, n int) (local *program.Program, ok bool) {
	if rows%n != 0 {
		return nil, false
	}
	ok = true
	shorten := func(id program.ID, t *program.Type) {
		if !hasPartOfRows(p, id, rows) {
			return
		}
		ok = ok && t.Shape[0]%n == 0
		t.Shape = slices.Clone(t.Shape)
		t.Shape[0] /= n
	}
	q := *p
	q.Inputs, q.Nodes = slices.Clone(p.Inputs), slices.Clone(p.Nodes)
	for i := range q.Inputs {
		shorten(program.ID(i), &q.Inputs[i].Type)
	}
	for i := range q.Nodes {
		node := &q.Nodes[i]
		shorten(program.ID(len(q.Inputs)+i), &node.Type)
		switch a := node.Attr; node.Op {
		case program.OpConstant:
			ok = ok && len(a.Floats)+len(a.Ints) == 1
		case program.OpIota:
			ok = ok && a.Axes[0] != 0
		}
	}
	return &q, ok && q.Validate(program.Limits{Linalg: true}) == nil
}
