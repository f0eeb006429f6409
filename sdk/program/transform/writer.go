package transform

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Simplify returns a cheaper program with the inputs and outputs of p, which must be valid, and
// bitwise equal results: equal operations are merged, identity operations and unused nodes are
// removed. Only exact identities are used: x·1 is x and x − 0 is x, but x + 0 is not x when x is
// −0, and folding products of constants would round differently.
func Simplify(p *program.Program) (*program.Program, error) {
	w := NewWriter(p.Name)
	values := w.Copy(p, w.Inputs(p))
	for _, o := range p.Outputs {
		w.Output(o.Name, values[o.Value])
	}
	return w.Build()
}

// Writer builds a program like [program.Builder] and simplifies as it goes. As
// there, the first mistake is kept and returned by Build.
type Writer struct {
	b *program.Builder
	// origin has the node that defines each value; seen maps the key of a node to its value.
	origin map[program.Value]node
	seen   map[string]program.Value
}

// node is an operation with its operands; number is its index among the values of a writer.
type node struct {
	op     program.Op
	attr   program.Attr
	args   []program.Value
	number int
}

// NewWriter starts an empty program.
func NewWriter(name string) *Writer {
	return &Writer{
		b:      program.NewBuilder(name),
		origin: map[program.Value]node{},
		seen:   map[string]program.Value{},
	}
}

// Input declares the next argument; all inputs come before the first operation.
func (w *Writer) Input(name string, t program.Type) program.Value {
	v := w.b.Input(name, t)
	w.record(v, node{})
	return v
}

// Inputs declares the inputs of p.
func (w *Writer) Inputs(p *program.Program) []program.Value {
	values := make([]program.Value, len(p.Inputs))
	for i, in := range p.Inputs {
		values[i] = w.Input(in.Name, in.Type)
	}
	return values
}

// Copy writes the operations of p, with inputs substituted for its own, and returns the
// corresponding value for each value of p.
func (w *Writer) Copy(p *program.Program, inputs []program.Value) []program.Value {
	return Interpret(p, inputs, func(_ program.ID, n *program.Node, args []program.Value) program.Value {
		return w.Apply(n.Op, n.Attr, n.Type, args...)
	})
}

// Output names v as a result.
func (w *Writer) Output(name string, v program.Value) { w.b.Output(name, v) }

// Build finishes the program, as [program.Builder.Build] does.
func (w *Writer) Build() (*program.Program, error) { return w.b.Build() }

// Err returns the first mistake so far.
func (w *Writer) Err() error { return w.b.Err() }

// Const returns a scalar float constant.
func (w *Writer) Const(v float64) program.Value {
	return w.Apply(program.OpConstant, program.Attr{Floats: []float64{v}}, program.FloatType())
}

// Constant returns the value of all elements of v, if v is a float constant with
// one stored element.
func (w *Writer) Constant(v program.Value) (float64, bool) {
	n := w.origin[v]
	if n.op != program.OpConstant || len(n.attr.Floats) != 1 {
		return 0, false
	}
	return n.attr.Floats[0], true
}

// Unary applies an operation without attributes to one operand.
func (w *Writer) Unary(op program.Op, x program.Value) program.Value {
	return w.Apply(op, program.Attr{}, program.Type{}, x)
}

// Binary applies an operation without attributes to two operands.
func (w *Writer) Binary(op program.Op, x, y program.Value) program.Value {
	return w.Apply(op, program.Attr{}, program.Type{}, x, y)
}

// Apply adds one operation as [program.Builder.Apply] does, or returns an equal
// value that exists already.
func (w *Writer) Apply(op program.Op, attr program.Attr, t program.Type, args ...program.Value) program.Value {
	if w.b.Err() != nil {
		return w.b.Apply(op, attr, t, args...)
	}
	key := w.key(op, attr, t, args)
	if v, ok := w.seen[key]; ok {
		return v
	}
	// The unsimplified node is written in any case: it gives the type of the result, and
	// Build drops it when a simpler value replaces it.
	v := w.b.Apply(op, attr, t, args...)
	if w.b.Err() != nil {
		return v
	}
	w.record(v, node{op: op, attr: attr, args: args})
	if simpler, ok := w.simplify(w.origin[v], v.Type()); ok && simpler.Type().Equal(v.Type()) {
		v = simpler
	}
	w.seen[key] = v
	return v
}

func (w *Writer) record(v program.Value, n node) {
	n.number = len(w.origin)
	w.origin[v] = n
}

func (w *Writer) key(op program.Op, attr program.Attr, t program.Type, args []program.Value) string {
	numbers := make([]int, len(args))
	for i, a := range args {
		numbers[i] = w.origin[a].number
	}
	switch op {
	case program.OpAdd, program.OpMul, program.OpAnd, program.OpOr, program.OpXor, program.OpEq, program.OpNe:
		slices.Sort(numbers)
	}
	var data [sha256.Size]byte
	if len(attr.Floats)+len(attr.Ints) > 0 {
		h := sha256.New()
		// Writing slices of numbers to a hash cannot fail.
		_ = binary.Write(h, binary.LittleEndian, attr.Floats)
		_ = binary.Write(h, binary.LittleEndian, attr.Ints)
		h.Sum(data[:0])
	}
	stated := wish(op, t)
	text := binary.AppendVarint(data[:], int64(op))
	text = binary.AppendVarint(text, int64(stated.DType))
	text = binary.AppendVarint(text, int64(attr.Block))
	for _, list := range [][]int{numbers, stated.Shape, attr.Axes, attr.Start, attr.Limit, attr.Stride,
		attr.LhsContract, attr.RhsContract, attr.LhsBatch, attr.RhsBatch} {
		text = binary.AppendVarint(text, int64(len(list)))
		for _, n := range list {
			text = binary.AppendVarint(text, int64(n))
		}
	}
	return string(text)
}

// wish returns the part of a stated type that is a parameter of the operation: for
// most operations nothing, because the type follows from the operands.
func wish(op program.Op, t program.Type) program.Type {
	info, _ := op.Info()
	switch {
	case info.Class == program.ClassSource:
		return t
	case op == program.OpConvert || op == program.OpBitcast:
		return program.Type{DType: t.DType}
	case op == program.OpReshape || op == program.OpBroadcast || op == program.OpScatterAdd:
		return program.Type{Shape: t.Shape}
	}
	return program.Type{}
}
