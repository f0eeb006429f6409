package lower

import (
	"slices"
	"sync"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// If a program's inputs are sharded along the first axis ([engine.HasRows]), each replica computes
// its rows of the values derived from them. Programs and plugins need not know about it: most
// operations compute rows from rows, a reduction over the first axis is completed by an all-reduce,
// and the operands of operations that need whole tensors are all-gathered.

// onShards lowers the program, each replica its own rows where possible.
func (l *lowering) onShards(inputs []*graph.Node) map[string]*graph.Node {
	values := make([]*shard, len(inputs))
	for i, in := range inputs {
		values[i] = &shard{
			whole: func() *graph.Node { return in }, divided: engine.HasRows(in),
			rows: sync.OnceValue(func() *graph.Node { return engine.Rows(in) }),
		}
	}
	values = transform.Interpret(l.p, values, l.shard)
	outputs := make(map[string]*graph.Node, len(l.p.Outputs))
	for _, o := range l.p.Outputs {
		outputs[o.Name] = values[o.Value].whole()
	}
	return outputs
}

// A shard is a value of a program that runs on several replicas: the whole tensor, this replica's
// rows, or both. Each form is created on first use.
type shard struct {
	whole, rows func() *graph.Node
	// divided marks a value computed by rows: the whole tensor has to be gathered.
	divided bool
}

func (l *lowering) shard(id program.ID, n *program.Node, args []*shard) *shard {
	out := &shard{}
	anyDivided := slices.ContainsFunc(args, func(a *shard) bool { return a.divided })
	whole := func() *graph.Node { return l.node(id, n, wholes(args)) }
	rows := func() *graph.Node { return engine.Rows(out.whole()) }
	if byRows, ok := rowwise(l.p, n, engine.Replicas(l.g)); ok {
		rows = func() *graph.Node {
			list := wholes(nil)
			for i, a := range args {
				if byRows[i] {
					list = append(list, a.rows())
				} else {
					list = append(list, a.whole())
				}
			}
			part := *n // the node for the rows of one replica
			part.Type.Shape = slices.Clone(n.Type.Shape)
			part.Type.Shape[0] /= engine.Replicas(l.g)
			if n.Op == program.OpSlice {
				part.Attr.Limit = slices.Clone(n.Attr.Limit)
				part.Attr.Limit[0] = part.Type.Shape[0]
			}
			return l.node(id, &part, list)
		}
		if out.divided = anyDivided; anyDivided {
			whole = func() *graph.Node { return engine.Gather(out.rows()) }
		}
	} else if across, reduces := acrossReplicas[n.Op]; reduces && anyDivided {
		whole = func() *graph.Node {
			return across(l.node(id, n, []*graph.Node{args[0].rows()}))[0]
		}
	}
	out.whole, out.rows = sync.OnceValue(whole), sync.OnceValue(rows)
	return out
}

func wholes(values []*shard) []*graph.Node {
	return lists.Map(values, func(v *shard) *graph.Node { return v.whole() })
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

// acrossReplicas maps reductions to the collectives that complete them across replicas.
var acrossReplicas = map[program.Op]func(nodes ...*graph.Node) []*graph.Node{
	program.OpReduceSum: engine.SumAcross,
	program.OpReduceMax: engine.MaxAcross,
	program.OpReduceMin: engine.MinAcross,
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
