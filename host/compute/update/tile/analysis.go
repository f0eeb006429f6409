package tile

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/simplify"
)

// analysis divides the values of a program into scalars and tensors.
type analysis struct {
	p    *program.Program
	size int64 // elements of a tensor
	refs []ref // of the values of p

	nodes      []node
	reductions []reduction
	scalars    scalars
	fills      map[int]int // tensors filled with a scalar, by the scalar
	outputs    []place     // of the program's outputs
}

// place is where an output comes from: a tensor, or a scalar where that is -1.
type place struct{ tensor, scalar int }

// ref is where a value of the program is found.
type ref struct {
	kind kind
	id   int    // of the scalar, or of the tensor; of what is folded for a partial fold
	fold opcode // of a partial fold
}

type kind uint8

const (
	// aScalar is a scalar, and also a tensor with this scalar in all elements.
	aScalar kind = iota
	aTensor
	// aPartial is a tensor some of whose axes are folded. It exists only to be folded
	// on: the fold of the whole tensor is computed at once.
	aPartial
)

// node computes a tensor.
type node struct {
	op    opcode
	in    []int // tensors
	s     []int // scalars
	input int   // the position of an opInput among the program's inputs
	block int   // of an opRotate
	level int   // the longest chain of reductions that it depends on
}

// reduction folds a tensor to a scalar.
type reduction struct {
	op           opcode // opSum, opLargest or opSmallest
	node, scalar int
	phase        int // in which it is computed
}

// analyse sorts the values of p, or refuses it.
func analyse(p *program.Program) (*analysis, error) {
	p, err := simplify.Program(p)
	if err != nil {
		return nil, err
	}
	a := &analysis{p: p, fills: map[int]int{}}
	for i := range p.Nodes {
		if reason, ok := impossible[p.Nodes[i].Op]; ok {
			return nil, a.never(len(p.Inputs)+i, &p.Nodes[i], "%s", reason)
		}
	}
	a.scalars.number(0) // stands for operands that an operation does not have
	for i := range p.NumValues() {
		a.size = max(a.size, p.TypeOf(program.ID(i)).Size())
	}
	for i, in := range p.Inputs {
		switch {
		case in.Type.DType != program.Float:
			return nil, a.refuseInput(i, "it is %s, and only floats are computed", in.Type.DType)
		case in.Type.Size() == 1:
			a.refs = append(a.refs, ref{aScalar, a.scalars.add(scalar{kind: scalarInput, input: i}), 0})
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
		case t.DType != program.Float || r.kind == aPartial:
			return nil, &RefusedError{Program: p.Name, Value: "output " + o.Name, Reason: "it is neither a float tensor nor a scalar"}
		case t.Size() == 1:
			a.outputs = append(a.outputs, place{-1, r.id})
		case t.Size() != a.size: // a scalar, repeated to another shape
			return nil, &RefusedError{p.Name, "output " + o.Name, fmt.Sprintf("it has %d elements, others have %d", t.Size(), a.size), true}
		default:
			a.outputs = append(a.outputs, place{tensor: a.vector(r)})
		}
	}
	return a, nil
}

// tensor adds a node and finds its level.
func (a *analysis) tensor(n node) ref {
	for _, i := range n.in {
		n.level = max(n.level, a.nodes[i].level)
	}
	for _, i := range n.s {
		n.level = max(n.level, a.scalars.list[i].level)
	}
	a.nodes = append(a.nodes, n)
	return ref{aTensor, len(a.nodes) - 1, 0}
}

// vector is a tensor for an operand that may be a scalar.
func (a *analysis) vector(r ref) int {
	if r.kind == aTensor {
		return r.id
	}
	if _, ok := a.fills[r.id]; !ok {
		a.fills[r.id] = a.tensor(node{op: opFill, s: []int{r.id}}).id
	}
	return a.fills[r.id]
}

// value finds the place of a node's result.
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
	if reason, ok := unwritten[n.Op]; ok {
		return ref{}, a.refuse(n, "%s", reason)
	}
	return rules[n.Op](a, n, args)
}

func (a *analysis) constant(n *program.Node, _ []ref) (ref, error) {
	if len(n.Attr.Floats)+len(n.Attr.Ints) != 1 {
		return ref{}, a.refuse(n, "its elements differ")
	}
	return ref{aScalar, a.scalars.constant(n.Attr), 0}, nil
}

// rotation multiplies blocks of elements by the Walsh–Hadamard matrix. Blocks that fit
// tiles divide them, as both are powers of two.
func (a *analysis) rotation(n *program.Node, args []ref) (ref, error) {
	switch {
	case args[0].kind == aPartial:
		return ref{}, a.refusePartial(n)
	case n.Attr.Block > Elements:
		return ref{}, a.never(len(a.refs), n, "its blocks of %d elements are larger than tiles", n.Attr.Block)
	case n.Type.Size() != a.size:
		return ref{}, a.refuse(n, "it has %d elements, tensors have %d", n.Type.Size(), a.size)
	}
	return a.tensor(node{op: opRotate, in: []int{a.vector(args[0])}, block: n.Attr.Block}), nil
}

// fold is a reduction, of a whole tensor or of some axes on the way there.
func (a *analysis) fold(n *program.Node, op opcode, r ref) (ref, error) {
	before, after := a.p.TypeOf(n.Args[0]).Size(), n.Type.Size()
	switch {
	case before == after: // of axes of size 1
		return r, nil
	case n.Type.DType != program.Float:
		return ref{}, a.refuse(n, "it folds what is no float tensor")
	case r.kind == aScalar && op != opSum: // of equal elements
		return r, nil
	case r.kind == aScalar && before != a.size:
		return ref{}, a.refuse(n, "it sums %d elements, tensors have %d", before, a.size)
	case r.kind == aScalar:
		return a.fold(n, op, ref{aTensor, a.vector(r), 0})
	case r.kind == aPartial && r.fold != op:
		return ref{}, a.refuse(n, "axes are folded by different operations")
	case after > 1:
		return ref{aPartial, r.id, op}, nil
	}
	for _, d := range a.reductions {
		if d.op == op && d.node == r.id {
			return ref{aScalar, d.scalar, 0}, nil
		}
	}
	s := a.scalars.add(scalar{kind: scalarReduction, level: a.nodes[r.id].level + 1})
	a.reductions = append(a.reductions, reduction{op: op, node: r.id, scalar: s})
	return ref{aScalar, s, 0}, nil
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

func (a *analysis) refuseInput(i int, format string, args ...any) error {
	return &RefusedError{Program: a.p.Name, Value: fmt.Sprintf("input %q", a.p.Inputs[i].Name), Reason: fmt.Sprintf(format, args...)}
}

// refuse is for a node that tiles do not compute yet.
func (a *analysis) refuse(n *program.Node, format string, args ...any) error {
	return &RefusedError{Program: a.p.Name, Value: fmt.Sprintf("%%%d = %s", len(a.refs), n.Op), Reason: fmt.Sprintf(format, args...)}
}

// never is for a node that no tile can compute, and whose result is the given value.
func (a *analysis) never(value int, n *program.Node, format string, args ...any) error {
	return &RefusedError{a.p.Name, fmt.Sprintf("%%%d = %s", value, n.Op), fmt.Sprintf(format, args...), true}
}

// refusePartial is for a node with an operand of which nothing but the fold of all axes is computed.
func (a *analysis) refusePartial(n *program.Node) error {
	return a.refuse(n, "an operand has some axes folded and others not")
}

// scalars are the values of a program that have one element, in an order in which
// each comes after what it is computed from.
type scalars struct {
	list []scalar
	ops  []int // those that are computed
}

type scalarKind uint8

const (
	scalarConstant scalarKind = iota
	scalarInput
	scalarOp
	scalarReduction
)

// scalar is one of them. Bools are 0 and 1.
type scalar struct {
	kind  scalarKind
	value float32                       // of a constant
	input int                           // position of an input
	apply func(x, y, z float32) float32 // of a scalarOp
	args  [3]int                        // 0 for those that apply does not read
	level int                           // 1 + the phase after which it is known; 0 before all phases
}

func (s *scalars) add(v scalar) int {
	s.list = append(s.list, v)
	if v.kind == scalarOp {
		s.ops = append(s.ops, len(s.list)-1)
	}
	return len(s.list) - 1
}

// number is a constant, equal ones being one.
func (s *scalars) number(v float32) int {
	for i, c := range s.list {
		if c.kind == scalarConstant && math.Float32bits(c.value) == math.Float32bits(v) {
			return i
		}
	}
	return s.add(scalar{kind: scalarConstant, value: v})
}

func (s *scalars) one() int { return s.number(1) }

func (s *scalars) constant(a program.Attr) int {
	if len(a.Floats) == 1 {
		return s.number(float32(a.Floats[0]))
	}
	return s.number(float32(a.Ints[0]))
}

// scalarOperation adds an operation whose operands are scalars.
func (a *analysis) scalarOperation(apply func(x, y, z float32) float32, args []ref) ref {
	v := scalar{kind: scalarOp, apply: apply}
	for i, r := range args {
		v.args[i] = r.id
		v.level = max(v.level, a.scalars.list[r.id].level)
	}
	return ref{aScalar, a.scalars.add(v), 0}
}

// settle renews the levels once the phases of all reductions are known.
func (a *analysis) settle() {
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
