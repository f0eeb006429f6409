package tile

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/simplify"
)

// analysis is a program divided into scalars and tensors.
type analysis struct {
	p    *program.Program
	size int64 // elements of a tensor
	refs []ref // of the values of p

	nodes      []node
	reductions []reduction
	scalars    scalars
	fills      map[int]int // tensors filled with a scalar, by the scalar
	outputs    []outputRef
}

// outputRef refers to the value of an output: a tensor, or a scalar if tensor is -1.
type outputRef struct{ tensor, scalar int }

// ref refers to the scalar or tensor that a value of the program has become.
type ref struct {
	kind kind
	id   int    // of the scalar or tensor; for a partial fold, of the tensor that is folded
	fold opcode // of a partial fold
}

type kind uint8

const (
	// scalarRef is a scalar, or a tensor with this scalar in all elements.
	scalarRef kind = iota
	tensorRef
	// partialRef is a tensor some of whose axes are folded. Its value is not computed: it is
	// an intermediate step of a fold over all axes, which is computed at once.
	partialRef
)

// node computes a tensor.
type node struct {
	op    opcode
	in    []int // tensors
	s     []int // scalars
	input int   // the position of an opInput among the program's inputs
	block int   // of an opRotate
	level int   // the length of the longest chain of reductions that it depends on
}

// reduction folds a tensor to a scalar.
type reduction struct {
	op           opcode // opSum, opLargest or opSmallest
	node, scalar int
	phase        int // the one that computes it
}

// analyse finds the scalars and tensors of p, or refuses it.
func analyse(p *program.Program) (*analysis, error) {
	p, err := simplify.Program(p)
	if err != nil {
		return nil, err
	}
	a := &analysis{p: p, fills: map[int]int{}}
	for i := range p.Nodes {
		if reason, ok := neverPossible[p.Nodes[i].Op]; ok {
			return nil, a.refuseForever(len(p.Inputs)+i, &p.Nodes[i], "%s", reason)
		}
	}
	a.scalars.constant(0) // scalar 0 is the operand of operations with fewer than three
	for i := range p.NumValues() {
		a.size = max(a.size, p.TypeOf(program.ID(i)).Size())
	}
	for i, in := range p.Inputs {
		switch {
		case in.Type.DType != program.Float:
			return nil, a.refuseInput(i, "it is %s, and only floats are computed", in.Type.DType)
		case in.Type.Size() == 1:
			a.refs = append(a.refs, ref{scalarRef, a.scalars.add(scalar{kind: scalarInput, input: i}), 0})
		case in.Type.Size() == a.size:
			a.refs = append(a.refs, a.tensor(node{op: opInput, input: i}))
		default:
			return nil, a.refuseInput(i, "it has %d elements, others have %d", in.Type.Size(), a.size)
		}
	}
	for i := range p.Nodes {
		r, err := a.value(&p.Nodes[i])
		if err != nil {
			return nil, err
		}
		a.refs = append(a.refs, r)
	}
	for _, o := range p.Outputs {
		switch t, r := p.TypeOf(o.Value), a.refs[o.Value]; {
		case t.DType != program.Float || r.kind == partialRef:
			return nil, &RefusedError{Program: p.Name, Value: "output " + o.Name, Reason: "it is neither a float tensor nor a scalar"}
		case t.Size() == 1:
			a.outputs = append(a.outputs, outputRef{-1, r.id})
		case t.Size() != a.size: // a scalar, repeated to another shape
			return nil, &RefusedError{p.Name, "output " + o.Name, fmt.Sprintf("it has %d elements, others have %d", t.Size(), a.size), true}
		default:
			a.outputs = append(a.outputs, outputRef{tensor: a.vector(r)})
		}
	}
	return a, nil
}

// tensor adds a node and computes its level.
func (a *analysis) tensor(n node) ref {
	for _, i := range n.in {
		n.level = max(n.level, a.nodes[i].level)
	}
	for _, i := range n.s {
		n.level = max(n.level, a.scalars.list[i].level)
	}
	a.nodes = append(a.nodes, n)
	return ref{tensorRef, len(a.nodes) - 1, 0}
}

// vector returns the tensor of an operand. A scalar becomes a tensor that is filled with it.
func (a *analysis) vector(r ref) int {
	if r.kind == tensorRef {
		return r.id
	}
	if _, ok := a.fills[r.id]; !ok {
		a.fills[r.id] = a.tensor(node{op: opFill, s: []int{r.id}}).id
	}
	return a.fills[r.id]
}

// value applies the rule of a node.
func (a *analysis) value(n *program.Node) (ref, error) {
	args := make([]ref, len(n.Args))
	for i, id := range n.Args {
		args[i] = a.refs[id]
		if d := a.p.TypeOf(id).DType; d != program.Float && d != program.Bool {
			return ref{}, a.refuse(n, "an operand is %s", d)
		}
	}
	if n.Type.DType != program.Float && n.Type.DType != program.Bool {
		return ref{}, a.refuse(n, "the result is %s", n.Type.DType)
	}
	if reason, ok := notYet[n.Op]; ok {
		return ref{}, a.refuse(n, "%s", reason)
	}
	return rules[n.Op](a, n, args)
}

func (a *analysis) constant(n *program.Node, _ []ref) (ref, error) {
	if len(n.Attr.Floats)+len(n.Attr.Ints) != 1 {
		return ref{}, a.refuse(n, "its elements differ")
	}
	if len(n.Attr.Floats) == 1 {
		return ref{scalarRef, a.scalars.constant(float32(n.Attr.Floats[0])), 0}, nil
	}
	return ref{scalarRef, a.scalars.constant(float32(n.Attr.Ints[0])), 0}, nil
}

// rotation multiplies blocks of elements by the Walsh–Hadamard matrix. Blocks that fit
// tiles divide them, as both are powers of two.
func (a *analysis) rotation(n *program.Node, args []ref) (ref, error) {
	switch {
	case args[0].kind == partialRef:
		return ref{}, a.refusePartial(n)
	case n.Attr.Block > Elements:
		return ref{}, a.refuseForever(len(a.refs), n, "its blocks of %d elements are larger than tiles", n.Attr.Block)
	case n.Type.Size() != a.size:
		return ref{}, a.refuse(n, "it has %d elements, tensors have %d", n.Type.Size(), a.size)
	}
	return a.tensor(node{op: opRotate, in: []int{a.vector(args[0])}, block: n.Attr.Block}), nil
}

// fold is a reduction of a whole tensor, or of some of its axes as a step of one.
func (a *analysis) fold(n *program.Node, op opcode, r ref) (ref, error) {
	before, after := a.p.TypeOf(n.Args[0]).Size(), n.Type.Size()
	switch {
	case before == after: // of axes of size 1
		return r, nil
	case n.Type.DType != program.Float:
		return ref{}, a.refuse(n, "it folds what is no float tensor")
	case r.kind == scalarRef && op != opSum: // of equal elements
		return r, nil
	case r.kind == scalarRef && before != a.size:
		return ref{}, a.refuse(n, "it sums %d elements, tensors have %d", before, a.size)
	case r.kind == scalarRef:
		return a.fold(n, op, ref{tensorRef, a.vector(r), 0})
	case r.kind == partialRef && r.fold != op:
		return ref{}, a.refuse(n, "axes are folded by different operations")
	case after > 1:
		return ref{partialRef, r.id, op}, nil
	}
	for _, d := range a.reductions {
		if d.op == op && d.node == r.id {
			return ref{scalarRef, d.scalar, 0}, nil
		}
	}
	s := a.scalars.add(scalar{kind: scalarReduction, level: a.nodes[r.id].level + 1})
	a.reductions = append(a.reductions, reduction{op: op, node: r.id, scalar: s})
	return ref{scalarRef, s, 0}, nil
}

// RefusedError says why this package does not execute a program. The program itself is
// not at fault.
type RefusedError struct {
	Program string
	// Value is the input or node that is the obstacle, as in "input \"x\"" or "%3 = dot".
	Value  string
	Reason string
	// Never says that the program can never run in tiles, in which every element is
	// computed from the same elements of other tensors alone. It is false for what could
	// run in tiles but is not implemented yet.
	Never bool
}

// Error names the program, the value and the reason.
func (e *RefusedError) Error() string {
	how := "does not run in tiles yet"
	if e.Never {
		how = "cannot run in tiles"
	}
	return fmt.Sprintf("program %q %s: %s: %s", e.Program, how, e.Value, e.Reason)
}

// refuseInput refuses the program for one of its inputs.
func (a *analysis) refuseInput(i int, format string, args ...any) error {
	return &RefusedError{Program: a.p.Name, Value: fmt.Sprintf("input %q", a.p.Inputs[i].Name), Reason: fmt.Sprintf(format, args...)}
}

// refuse refuses the program for the next node, which tiles do not compute yet.
func (a *analysis) refuse(n *program.Node, format string, args ...any) error {
	return &RefusedError{Program: a.p.Name, Value: fmt.Sprintf("%%%d = %s", len(a.refs), n.Op), Reason: fmt.Sprintf(format, args...)}
}

// refuseForever refuses the program for a node that tiles can never compute, and whose result is the given value.
func (a *analysis) refuseForever(value int, n *program.Node, format string, args ...any) error {
	return &RefusedError{a.p.Name, fmt.Sprintf("%%%d = %s", value, n.Op), fmt.Sprintf(format, args...), true}
}

// refusePartial refuses a node with an operand some of whose axes are folded, as such a tensor is not computed.
func (a *analysis) refusePartial(n *program.Node) error {
	return a.refuse(n, "an operand has some axes folded and others not")
}

// scalars are the values of a program that have one element, in an order in which
// each comes after its operands.
type scalars struct {
	list []scalar
	ops  []int // positions of those of kind scalarOp
}

type scalarKind uint8

const (
	scalarConstant scalarKind = iota
	scalarInput
	scalarOp
	scalarReduction
)

// scalar is a value with one element. Bools are 0 and 1.
type scalar struct {
	kind  scalarKind
	value float32                       // of a constant
	input int                           // position of an input
	apply func(x, y, z float32) float32 // of a scalarOp
	args  [3]int                        // scalar 0 for operands that apply does not have
	level int                           // 1 + the phase after which it is known; 0 before all phases
}

func (s *scalars) add(v scalar) int {
	s.list = append(s.list, v)
	if v.kind == scalarOp {
		s.ops = append(s.ops, len(s.list)-1)
	}
	return len(s.list) - 1
}

// constant returns the constant of this value, which it adds if there is none.
func (s *scalars) constant(v float32) int {
	for i, c := range s.list {
		if c.kind == scalarConstant && math.Float32bits(c.value) == math.Float32bits(v) {
			return i
		}
	}
	return s.add(scalar{kind: scalarConstant, value: v})
}

// scalarOperation adds an operation whose operands are scalars.
func (a *analysis) scalarOperation(apply func(x, y, z float32) float32, args []ref) ref {
	v := scalar{kind: scalarOp, apply: apply}
	for i, r := range args {
		v.args[i] = r.id
		v.level = max(v.level, a.scalars.list[r.id].level)
	}
	return ref{scalarRef, a.scalars.add(v), 0}
}

// renewLevels computes the levels of scalars again, from the phases of the reductions.
func (a *analysis) renewLevels() {
	for _, d := range a.reductions {
		a.scalars.list[d.scalar].level = d.phase + 1
	}
	for _, i := range a.scalars.ops {
		v := &a.scalars.list[i]
		v.level = 0
		for _, j := range v.args {
			v.level = max(v.level, a.scalars.list[j].level)
		}
	}
}

// evaluate computes the scalars of a level.
func (s *scalars) evaluate(level int, env []float32) {
	for _, i := range s.ops {
		if v := &s.list[i]; v.level == level {
			env[i] = v.apply(env[v.args[0]], env[v.args[1]], env[v.args[2]])
		}
	}
}
