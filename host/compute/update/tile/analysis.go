package tile

import (
	"fmt"

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
	id   int        // of the scalar, or of the tensor; of what is folded for a partial fold
	fold program.Op // of a partial fold
}

type kind uint8

const (
	// aScalar stands for itself and for every tensor that it fills.
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
	level int   // how many reductions lie one behind the other before it
}

// reduction folds a tensor to a scalar.
type reduction struct {
	op           program.Op // OpReduceSum, OpReduceMax or OpReduceMin
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
		if reason := impossible(&p.Nodes[i]); reason != "" {
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

// impossible says why no tile can compute an operation, of whatever operands; "" if it says nothing.
func impossible(n *program.Node) string {
	switch info, _ := n.Op.Info(); {
	case n.Op == program.OpTranspose, n.Op == program.OpSlice, n.Op == program.OpConcatenate:
		return "elements change their places"
	case info.Class == program.ClassLinalg, info.Class == program.ClassLinear && n.Op != program.OpHadamard:
		return "an element of the result depends on many others"
	}
	return ""
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
	scalars := true
	for i, id := range n.Args {
		args[i] = a.refs[id]
		if d := a.p.TypeOf(id).DType; d != program.Float && d != program.Bool {
			return ref{}, a.refuse(n, "an operand is %s", d)
		}
		scalars = scalars && args[i].kind == aScalar
	}
	if n.Type.DType != program.Float && n.Type.DType != program.Bool {
		return ref{}, a.refuse(n, "the result is %s", n.Type.DType)
	}
	info, _ := n.Op.Info()
	switch info.Class {
	case program.ClassSource:
		return a.constant(n)
	case program.ClassShape:
		return a.moved(n, args)
	case program.ClassReduce:
		return a.fold(n, args[0])
	case program.ClassGradient:
		return args[0], nil
	}
	for _, r := range args {
		if r.kind == aPartial {
			return ref{}, a.refuse(n, "an operand has some axes folded and others not")
		}
	}
	if n.Op == program.OpHadamard {
		return a.rotation(n, args[0])
	}
	if scalars {
		return a.scalarOperation(n, args)
	}
	return a.elementwise(n, args)
}

func (a *analysis) constant(n *program.Node) (ref, error) {
	if n.Op != program.OpConstant || len(n.Attr.Floats)+len(n.Attr.Ints) != 1 {
		return ref{}, a.refuse(n, "its elements differ")
	}
	return ref{aScalar, a.scalars.constant(n.Attr), 0}, nil
}

// moved is a reshape, or a broadcast that repeats a scalar: elements keep their
// positions.
func (a *analysis) moved(n *program.Node, args []ref) (ref, error) {
	r := args[0]
	if n.Op == program.OpReshape || n.Op == program.OpBroadcast && (r.kind == aScalar || r.kind == aTensor && n.Type.Size() == a.size) {
		return r, nil
	}
	return ref{}, a.never(len(a.refs), n, "elements change their places")
}

// rotation multiplies blocks of elements by the Walsh–Hadamard matrix. Blocks that fit
// tiles divide them, as both are powers of two.
func (a *analysis) rotation(n *program.Node, r ref) (ref, error) {
	switch {
	case n.Attr.Block > Elements:
		return ref{}, a.never(len(a.refs), n, "its blocks of %d elements are larger than tiles", n.Attr.Block)
	case n.Type.Size() != a.size:
		return ref{}, a.refuse(n, "it has %d elements, tensors have %d", n.Type.Size(), a.size)
	}
	return a.tensor(node{op: opRotate, in: []int{a.vector(r)}, block: n.Attr.Block}), nil
}

// fold is a reduction, of a whole tensor or of some axes on the way there.
func (a *analysis) fold(n *program.Node, r ref) (ref, error) {
	before, after := a.p.TypeOf(n.Args[0]).Size(), n.Type.Size()
	switch {
	case before == after: // of axes of size 1
		return r, nil
	case n.Type.DType != program.Float:
		return ref{}, a.refuse(n, "it folds what is no float tensor")
	case r.kind == aScalar && n.Op != program.OpReduceSum: // of equal elements
		return r, nil
	case r.kind == aScalar && before != a.size:
		return ref{}, a.refuse(n, "it sums %d elements, tensors have %d", before, a.size)
	case r.kind == aScalar:
		return a.fold(n, ref{aTensor, a.vector(r), 0})
	case r.kind == aPartial && r.fold != n.Op:
		return ref{}, a.refuse(n, "axes are folded by different operations")
	case after > 1:
		return ref{aPartial, r.id, n.Op}, nil
	}
	for _, d := range a.reductions {
		if d.op == n.Op && d.node == r.id {
			return ref{aScalar, d.scalar, 0}, nil
		}
	}
	s := a.scalars.add(scalar{kind: scalarReduction, level: a.nodes[r.id].level + 1})
	a.reductions = append(a.reductions, reduction{op: n.Op, node: r.id, scalar: s})
	return ref{aScalar, s, 0}, nil
}
