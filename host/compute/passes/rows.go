// Package passes analyzes and rewrites programs. It maps the elements of a program's values to
// rows, and divides a program into a part that needs whole tensors and a part that computes rows
// from rows ([DivideRows]). It factors matrices into small integers and scales ([FactorRows]). It
// detects the rotation in which an output ends and can remove it ([UndoRotation]).
package passes

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Storage is the type in which floats, or bools, are stored in memory. Arithmetic is in float32.
type Storage string

// The types in which floats are stored in memory, and Bits, eight bools in a byte.
const (
	Float32  Storage = "f32"
	BFloat16 Storage = "bf16"
	Float16  Storage = "f16"
	// Int8 and Uint8 are for integers from −128 to 127, and from 0 to 255.
	Int8  Storage = "i8"
	Uint8 Storage = "u8"
	Bits  Storage = "bits"
)

// A Layout maps the elements of a tensor to rows. All rows have the same number of elements, which
// are contiguous in memory.
type Layout struct {
	// Outer is the number of leading axes that count rows.
	Outer int
	// Merged marks that the last of these axes also counts the parts of a row. The number of parts
	// is then the first element of Row.
	Merged bool
	// Row holds the sizes of the axes within a row; it is empty if a row is one element.
	Row []int
}

// LayoutOf divides the axes of a type into those that count rows and those within a row. ok is
// false if some rows would have no elements, for example if a scalar is divided into several rows.
func LayoutOf(t program.Type, rows int) (l Layout, ok bool) {
	if t.Size() == 1 && rows > 1 {
		return Layout{}, false
	}
	count := 1
	for l.Outer < len(t.Shape) && count%rows != 0 {
		count *= t.Shape[l.Outer]
		l.Outer++
	}
	if count%rows != 0 {
		return Layout{}, false
	}
	if parts := count / rows; parts > 1 {
		l.Merged = true
		l.Row = append(l.Row, parts)
	}
	l.Row = append(l.Row, t.Shape[l.Outer:]...)
	return l, true
}

// Size returns the number of elements in a row.
func (l Layout) Size() int { return Elements(l.Row) }

// Elements returns the number of elements of a tensor with axes of the given sizes.
func Elements(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// Strides returns the stride of each axis of a tensor in row-major order.
func Strides(dims []int) []int {
	strides, stride := make([]int, len(dims)), 1
	for i, d := range slices.Backward(dims) {
		strides[i], stride = stride, stride*d
	}
	return strides
}

// Axis returns the axis within a row, counted from 1, that corresponds to axis i of the tensor, or
// 0 if axis i counts rows.
func (l Layout) Axis(i int) int {
	if i < l.Outer {
		return 0
	}
	if l.Merged {
		i++
	}
	return 1 + i - l.Outer
}

// IsShared reports whether a value of p is an input of shape [1, n], which all rows share.
func IsShared(p *program.Program, id program.ID, rows int) bool {
	return int(id) < len(p.Inputs) && isShared(p.TypeOf(id), rows)
}

func isShared(t program.Type, rows int) bool {
	return rows > 1 && len(t.Shape) == 2 && t.Shape[0] == 1 && t.Shape[1] > 1
}

// A Division is a program in two parts. The first computes values that need whole tensors, such as
// their largest element. The second takes these values and computes row by row.
type Division struct {
	// Whole takes the inputs of the program and returns the values that Rows takes, as well as the
	// outputs of the program that Rows does not return. It is nil if there are none.
	Whole *program.Program
	// Rows takes the inputs of the program that it needs, and the values from Whole, whose names
	// are [NumberPrefix] and a number. It is nil if it would compute nothing.
	Rows *program.Program
}

// NumberPrefix is the prefix for the names of the values that one part of a division passes to the
// other.
const NumberPrefix = "whole."

// DivideRows divides p, which must be valid, into a part that needs whole tensors and a part that
// computes row by row. fits reports whether the executor of the rows supports a layout; values with
// unsupported layouts are computed from whole tensors.
func DivideRows(p *program.Program, rows int, fits func(Layout) bool) (Division, error) {
	c := cut{p, rows, fits}
	whole := c.whole()
	var numbers, outside, inside []program.Output
	for _, o := range p.Outputs {
		if c.apart(p.TypeOf(o.Value)) {
			outside = append(outside, o)
		} else {
			inside = append(inside, o)
		}
	}
	needed := transform.Needs(p, inside)
	for i := range p.Nodes {
		id := program.ID(len(p.Inputs) + i)
		if !needed[id] || whole[id] {
			continue
		}
		for _, a := range p.Nodes[i].Args {
			known := func(o program.Output) bool { return o.Value == a }
			if whole[a] && p.Node(a) != nil && !slices.ContainsFunc(numbers, known) {
				name := fmt.Sprint(NumberPrefix, len(numbers))
				numbers = append(numbers, program.Output{Name: name, Value: a})
			}
		}
	}
	var d Division
	var err error
	if to := append(slices.Clone(numbers), outside...); len(to) > 0 {
		if d.Whole, err = transform.Extract(p, p.Name+".whole", transform.Arguments(p), to); err != nil {
			return d, err
		}
	}
	if len(inside) == 0 {
		return d, nil
	}
	all := append(transform.Arguments(p), numbers...)
	if d.Rows, err = transform.Extract(p, p.Name, all, inside); err != nil {
		return d, err
	}
	needed = transform.Needs(d.Rows, d.Rows.Outputs)
	inputs := slices.DeleteFunc(transform.Arguments(d.Rows), func(a program.Output) bool {
		return !needed[a.Value]
	})
	d.Rows, err = transform.Extract(d.Rows, p.Name, inputs, d.Rows.Outputs)
	return d, err
}

// cut is the state of one call of [DivideRows].
type cut struct {
	p    *program.Program
	rows int
	fits func(Layout) bool
}

// apart reports whether a value of type t has no elements in some rows.
func (c cut) apart(t program.Type) bool {
	l, ok := LayoutOf(t, c.rows)
	return !ok || !c.fits(l)
}

// whole marks the values of the first part: those without elements in some rows that are computed
// from values with elements in all rows; random bits, which depend on the index in the tensor; and
// values without elements in some rows that are computed only from random bits, such as random
// signs that all rows share.
func (c cut) whole() []bool {
	inputs := make([]bool, len(c.p.Inputs))
	reads := make([]bool, c.p.NumValues()) // rows
	drawn := make([]bool, c.p.NumValues()) // random bits
	for i, in := range c.p.Inputs {
		reads[i] = !c.apart(in.Type) && !IsShared(c.p, program.ID(i), c.rows)
	}
	return transform.Interpret(c.p, inputs, func(id program.ID, n *program.Node, _ []bool) bool {
		for _, a := range n.Args {
			reads[id] = reads[id] || reads[a]
			drawn[id] = drawn[id] || drawn[a]
		}
		if n.Op == program.OpRandomBits {
			reads[id], drawn[id] = false, true
			return true
		}
		apart := c.apart(n.Type)
		if reads[id] {
			return apart
		}
		return drawn[id] && (apart || isShared(n.Type, c.rows))
	})
}

// UnsupportedByRows maps the operations that executors of rows do not support to the reasons.
var UnsupportedByRows = map[program.Op]string{
	program.OpRandomBits:  notByRows,
	program.OpTranspose:   notByRows,
	program.OpSlice:       notByRows,
	program.OpConcatenate: notByRows,
	program.OpDot:         notByRows,
	program.OpQR:          factorization,
	program.OpEighValues:  factorization,
	program.OpEighVectors: factorization,
	program.OpSortColumns: factorization,

	program.OpNearest:        notByRows,
	program.OpLookup:         notByRows,
	program.OpScatterAdd:     notByRows,
	program.OpTopK:           notByRows,
	program.OpOrderStatistic: notByRows,
}

const (
	notByRows     = "executors of rows do not have this operation"
	factorization = "factorizations are computed on the host"
)

// A Refusal is the reason why an executor of rows does not run a program. The program itself is
// valid.
type Refusal struct {
	Program string
	Node    string // empty if the reason is not a single operation
	Reason  string
}

// Error implements the error interface.
func (r *Refusal) Error() string {
	reason := r.Reason
	if r.Node != "" {
		reason = r.Node + ": " + reason
	}
	return fmt.Sprintf("program %q cannot be computed by rows: %s", r.Program, reason)
}
