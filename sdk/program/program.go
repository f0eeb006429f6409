// Package program defines the language of plugins: small, loop-free, statically shaped tensor
// programs in SSA form.
//
// A quantizer or optimizer plugin does not compute on tensors. When a run starts, it returns a
// [Program] that the host checks, inlines into its training graph, differentiates and compiles.
// This package contains the operations and their exact meaning ([Ops]), the [Builder] that writes
// programs, their validation ([Program.Validate]), and their text form ([Program.String]). The
// reference implementation in float64 (package reference) and the host's devices execute them.
// Nothing here may know of plugins, processes or a tensor engine.
package program

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ID numbers a value of a program: the inputs come first, in order, then one value for each node.
type ID int32

// Program is a tensor program in SSA form: named inputs, nodes that each define one value from
// earlier ones, and named outputs. A Program that came from [Builder.Build] is valid; one from
// anywhere else must pass [Program.Validate] before it is used. Programs are immutable once built.
type Program struct {
	Name    string
	Inputs  []Input
	Nodes   []Node
	Outputs []Output
}

// Input is a named argument.
type Input struct {
	Name string
	Type Type
}

// Output names one value as a result.
type Output struct {
	Name  string
	Value ID
}

// Node applies an operation to earlier values. Type is the type of its result:
// for most operations it follows from the operands; for constant, iota, random_bits,
// convert, bitcast, reshape and broadcast it is also a parameter of the operation.
type Node struct {
	Op   Op
	Args []ID
	Type Type
	Attr Attr
}

// Attr holds the attributes of an operation. Unused ones are empty.
type Attr struct {
	// Axes is the axis of iota and concatenate, the permutation of transpose, the axis mapping of
	// broadcast, or the reduced axes of a reduction.
	Axes []int
	// Start, Limit and Stride are the range of slice, with one number per axis.
	Start, Limit, Stride []int
	// LhsContract, RhsContract, LhsBatch and RhsBatch are the axes of dot.
	LhsContract, RhsContract, LhsBatch, RhsBatch []int
	// Block is the block size of hadamard.
	Block int
	// Floats are the elements of a float constant, Ints those of other constants.
	Floats []float64
	Ints   []int64
	// Call is what a call calls, and Output the index of the output that is the node's value.
	Call   *Call
	Output int
}

// NumValues returns the number of inputs and nodes.
func (p *Program) NumValues() int { return len(p.Inputs) + len(p.Nodes) }

// Node returns the node that defines id, or nil when id is an input.
func (p *Program) Node(id ID) *Node {
	if i := int(id) - len(p.Inputs); i >= 0 && i < len(p.Nodes) {
		return &p.Nodes[i]
	}
	return nil
}

// TypeOf returns the type of a value of the program.
func (p *Program) TypeOf(id ID) Type {
	if int(id) < len(p.Inputs) {
		return p.Inputs[id].Type
	}
	return p.Nodes[int(id)-len(p.Inputs)].Type
}

// Output returns the value of the named output and whether there is one.
func (p *Program) Output(name string) (ID, bool) {
	for _, o := range p.Outputs {
		if o.Name == name {
			return o.Value, true
		}
	}
	return 0, false
}

// Input returns the index of the named input, or -1.
func (p *Program) Input(name string) int {
	return slices.IndexFunc(p.Inputs, func(in Input) bool { return in.Name == name })
}

// Hash returns the hex SHA-256 of the program's text form: equal programs have equal hashes.
func (p *Program) Hash() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(p.text(true))))
}

// DType is the element type of a value.
type DType uint8

// The element types. Float is the type of computation: IEEE binary32 on a
// device and binary64 in the reference implementation; its bit pattern ([OpBitcast]) is always
// that of binary32. Int and Uint are 32 bits wide and wrap around.
const (
	Invalid DType = iota
	Float
	Int
	Uint
	Bool
)

var dtypeNames = [...]string{"invalid", "float", "int", "uint", "bool"}

// String returns the name used in the text form: float, int, uint or bool.
func (d DType) String() string {
	if int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return "dtype(" + strconv.Itoa(int(d)) + ")"
}

// Valid reports whether d is one of the four element types.
func (d DType) Valid() bool { return d >= Float && d <= Bool }

// Type is the element type and static shape of a value. A scalar has an empty
// shape. Every axis has at least one element.
type Type struct {
	DType DType
	Shape []int
}

// FloatType returns the type of a float value of the given shape, or of a scalar if there are no
// dimensions.
func FloatType(shape ...int) Type { return Type{Float, shape} }

// Rank returns the number of axes, 0 for a scalar.
func (t Type) Rank() int { return len(t.Shape) }

// IsScalar reports whether the value has no axes.
func (t Type) IsScalar() bool { return len(t.Shape) == 0 }

// Size returns the number of elements: the product of the dimensions, 1 for a
// scalar. It saturates at 2⁶² instead of overflowing.
func (t Type) Size() int64 {
	size := int64(1)
	for _, d := range t.Shape {
		if d <= 0 {
			return 0
		}
		if size > saturated/int64(d) {
			return saturated
		}
		size *= int64(d)
	}
	return size
}

func (t Type) clone() Type { return Type{t.DType, slices.Clone(t.Shape)} }

// Equal reports whether both types have the same element type and shape.
func (t Type) Equal(o Type) bool { return t.DType == o.DType && slices.Equal(t.Shape, o.Shape) }

// String writes the type as in the text form, for example float[2,3] or bool.
func (t Type) String() string {
	if len(t.Shape) == 0 {
		return t.DType.String()
	}
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = strconv.Itoa(d)
	}
	return t.DType.String() + "[" + strings.Join(dims, ",") + "]"
}

// MaxSize is the largest number of elements a value may have, and MaxRank the largest number of
// axes. They hold for every program that travels between processes; a host sets tighter bounds by
// [Limits].
const (
	MaxSize   = 1<<31 - 1
	MaxRank   = 8
	saturated = 1 << 62
)

// Check returns an error unless the name and the type are valid.
func (in Input) Check() error { return cmp.Or(checkName(in.Name), in.Type.check(MaxSize)) }

// check returns an error if the type is invalid or has more than most elements.
func (t Type) check(most int64) error {
	if !t.DType.Valid() {
		return fmt.Errorf("element type %s does not exist: use float, int, uint or bool", t.DType)
	}
	if len(t.Shape) > MaxRank {
		return fmt.Errorf("got %d axes, want at most %d", len(t.Shape), MaxRank)
	}
	for i, d := range t.Shape {
		if d < 1 {
			return fmt.Errorf("axis %d has %d elements, want at least 1", i, d)
		}
	}
	if t.Size() > most {
		return fmt.Errorf("%s has more than %d elements", t, most)
	}
	return nil
}
