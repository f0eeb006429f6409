package wire

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

var errAbsent = errors.New("is absent")

// ToProgram encodes a valid program as a message. It returns nil if p is nil.
func ToProgram(p *program.Program) *pb.Program {
	if p == nil {
		return nil
	}
	m := &pb.Program{Name: p.Name}
	for _, in := range p.Inputs {
		m.Inputs = append(m.Inputs, &pb.Input{Name: in.Name, Type: toType(in.Type)})
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		m.Nodes = append(m.Nodes, &pb.Node{
			Op:   pb.Op(n.Op),
			Args: toNumbers(n.Args),
			Type: toType(n.Type),
			Attr: toAttr(&n.Attr),
		})
	}
	for _, o := range p.Outputs {
		m.Outputs = append(m.Outputs, &pb.Output{Name: o.Name, Value: uint32(o.Value)})
	}
	return m
}

func toType(t program.Type) *pb.Type {
	return &pb.Type{Dtype: pb.DType(t.DType), Shape: toNumbers(t.Shape)}
}

func toAttr(a *program.Attr) *pb.Attr {
	m := &pb.Attr{
		Axes:  toNumbers(a.Axes),
		Start: toNumbers(a.Start), Limit: toNumbers(a.Limit), Stride: toNumbers(a.Stride),
		LhsContract: toNumbers(a.LhsContract), RhsContract: toNumbers(a.RhsContract),
		LhsBatch: toNumbers(a.LhsBatch), RhsBatch: toNumbers(a.RhsBatch),
		Block:  uint32(a.Block),
		Floats: a.Floats, Ints: a.Ints,
	}
	if proto.Size(m) == 0 {
		return nil
	}
	return m
}

// FromProgram decodes a program. The result has only existing operations and element types, and no
// number overflows, but it is not yet validated. Constants share memory with the message.
func FromProgram(m *pb.Program) (*program.Program, error) {
	if m == nil {
		return nil, fmt.Errorf("the program %w", errAbsent)
	}
	p := &program.Program{
		Name:    m.GetName(),
		Inputs:  make([]program.Input, len(m.GetInputs())),
		Nodes:   make([]program.Node, len(m.GetNodes())),
		Outputs: make([]program.Output, len(m.GetOutputs())),
	}
	for i, in := range m.GetInputs() {
		t, err := fromType(in.GetType())
		if err != nil {
			return nil, fmt.Errorf("program %.60q: input %d: the type %w", p.Name, i, err)
		}
		p.Inputs[i] = program.Input{Name: in.GetName(), Type: t}
	}
	for i, n := range m.GetNodes() {
		if err := fromNode(n, &p.Nodes[i]); err != nil {
			return nil, fmt.Errorf("program %.60q: node %d: %w", p.Name, i, err)
		}
	}
	for i, o := range m.GetOutputs() {
		v, err := fromNumber[program.ID](o.GetValue())
		if err != nil {
			return nil, fmt.Errorf("program %.60q: output %d: the value %w", p.Name, i, err)
		}
		p.Outputs[i] = program.Output{Name: o.GetName(), Value: v}
	}
	return p, nil
}

func fromNode(m *pb.Node, n *program.Node) (err error) {
	n.Op = program.Op(m.GetOp())
	if _, ok := n.Op.Info(); !ok || pb.Op(n.Op) != m.GetOp() {
		return fmt.Errorf("operation %d does not exist", m.GetOp())
	}
	if n.Args, err = FromNumbers[program.ID](m.GetArgs()); err != nil {
		return fmt.Errorf("%s: operand %w", n.Op, err)
	}
	if n.Type, err = fromType(m.GetType()); err != nil {
		return fmt.Errorf("%s: the type %w", n.Op, err)
	}
	if n.Attr, err = fromAttr(m.GetAttr()); err != nil {
		return fmt.Errorf("%s: %w", n.Op, err)
	}
	return nil
}

func fromType(m *pb.Type) (program.Type, error) {
	if m == nil {
		return program.Type{}, errAbsent
	}
	t := program.Type{DType: program.DType(m.GetDtype())}
	if d := m.GetDtype(); d < 0 || d > math.MaxUint8 || !t.DType.Valid() {
		return program.Type{}, fmt.Errorf("has the element type %d, which does not exist", d)
	}
	var err error
	if t.Shape, err = FromNumbers[int](m.GetShape()); err != nil {
		return program.Type{}, fmt.Errorf("has an axis whose size %w", err)
	}
	return t, nil
}

func fromAttr(m *pb.Attr) (a program.Attr, err error) {
	if m == nil {
		return a, nil
	}
	lists := []struct {
		name string
		from []uint32
		to   *[]int
	}{
		{"axes", m.Axes, &a.Axes},
		{"start", m.Start, &a.Start}, {"limit", m.Limit, &a.Limit}, {"stride", m.Stride, &a.Stride},
		{"lhs_contract", m.LhsContract, &a.LhsContract}, {"rhs_contract", m.RhsContract, &a.RhsContract},
		{"lhs_batch", m.LhsBatch, &a.LhsBatch}, {"rhs_batch", m.RhsBatch, &a.RhsBatch},
	}
	for _, l := range lists {
		if *l.to, err = FromNumbers[int](l.from); err != nil {
			return a, fmt.Errorf("attribute %s %w", l.name, err)
		}
	}
	if a.Block, err = fromNumber[int](m.Block); err != nil {
		return a, fmt.Errorf("attribute block %w", err)
	}
	a.Floats, a.Ints = m.Floats, m.Ints
	return a, nil
}

// toNumbers converts shapes, axes and value IDs of a valid program, which have 31 bits.
func toNumbers[T ~int | ~int32](list []T) []uint32 {
	if len(list) == 0 {
		return nil
	}
	out := make([]uint32, len(list))
	for i, v := range list {
		out[i] = uint32(v)
	}
	return out
}

// FromNumbers converts numbers, each of which must be at most 2³¹−1.
func FromNumbers[T ~int | ~int32](list []uint32) ([]T, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make([]T, len(list))
	for i, v := range list {
		n, err := fromNumber[T](v)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

func fromNumber[T ~int | ~int32](v uint32) (T, error) {
	if v > math.MaxInt32 {
		return 0, fmt.Errorf("is %d, want at most %d", v, math.MaxInt32)
	}
	return T(v), nil
}

// ToShape encodes a shape; the size of every axis must be in 1…2³¹−1.
func ToShape(shape []int) ([]uint32, error) {
	for i, d := range shape {
		if d < 1 || d > math.MaxInt32 {
			return nil, fmt.Errorf("axis %d has %d elements, want 1 to %d", i, d, math.MaxInt32)
		}
	}
	return toNumbers(shape), nil
}

// FromShape decodes a shape.
func FromShape(shape []uint32) ([]int, error) {
	out, err := FromNumbers[int](shape)
	if err != nil {
		return nil, fmt.Errorf("an axis of the shape %w", err)
	}
	if i := slices.Index(out, 0); i >= 0 {
		return nil, fmt.Errorf("the shape has no elements on axis %d", i)
	}
	return out, nil
}
