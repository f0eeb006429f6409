package plan

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// alone adds the instruction of one operation.
func (c *compiler) alone(n *program.Node, id program.ID) error {
	in := instruction{name: n.Op.String(), in: c.operands(n)}
	if len(n.Args) == 0 { // it is computed once
		t, err := reference.Apply(n)
		if err != nil {
			return err
		}
		c.slotOf[id] = c.newSlot(n.Type)
		fromReference(c.newConstant(c.slotOf[id]), t)
		return nil
	}
	if k := slices.IndexFunc(n.Args, func(a program.ID) bool { return c.added[a] }); k >= 0 {
		// The sum is computed where the other operand is.
		in.in = append(c.operands(c.p.Node(n.Args[k])), in.in[1-k])
		in.run = func(in, _ []any, parallel loops.Parallel) error {
			index, x := in[0].([]int32), floats(in[1])
			loops.AddRows(floats(in[2]), index, x, len(x)/len(index), parallel)
			return nil
		}
		c.slotOf[id] = in.in[2]
		c.list = append(c.list, in)
		return nil
	}
	var err error
	switch n.Op {
	case program.OpDot:
		in.rounds, in.short = []bool{true, true}, []bool{true}
		in.run, err = c.product(n)
	case program.OpSlice, program.OpConcatenate, program.OpTranspose:
		in.run = c.move(n)
	case program.OpReduceSum, program.OpReduceMax, program.OpReduceMin:
		in.run = c.folds(n)
	}
	if err != nil {
		return err
	}
	types := lists.Map(n.Args, c.p.TypeOf)
	if whole := cpu.Whole(n, types); whole != nil {
		in.run = func(in, out []any, parallel loops.Parallel) error {
			whole(in, out, parallel)
			return nil
		}
	}
	if in.run == nil {
		in.run, err = c.repeated(n, types)
		if err != nil {
			return err
		}
	}
	if in.run == nil {
		in.name += " by the reference implementation"
		in.run = byReference(n, types)
	}
	c.slotOf[id] = c.newSlot(n.Type)
	in.out = []int{c.slotOf[id]}
	varies := func(s int) bool { return c.slots[s].constant == nil }
	if !slices.ContainsFunc(in.in, varies) { // computed once, too
		args := lists.Map(in.in, func(s int) any { return c.slots[s].constant })
		return in.run(args, []any{c.newConstant(c.slotOf[id])}, loops.InOrder)
	}
	c.list = append(c.list, in)
	return nil
}

// newConstant makes a slot a constant and returns its memory.
func (c *compiler) newConstant(at int) any {
	c.slots[at].constant = c.slots[at].allocate()
	return c.slots[at].constant
}

// repeated computes an elementwise operation of a tensor and of another one that is the same for
// each index of the first axes, for one index after the other; nil for other operations.
func (c *compiler) repeated(n *program.Node, types []program.Type) (function, error) {
	info, _ := n.Op.Info()
	elementwise := info.Class == program.ClassBinary || info.Class == program.ClassCompare
	if !elementwise || types[0].Size() == 1 || types[1].Size() == 1 {
		return nil, nil
	}
	const most = 1 << 10 // runs of a kernel
	part := min(types[0].Size(), types[1].Size())
	if n.Type.Size()/part > most {
		return nil, nil
	}
	b := program.NewBuilder(n.Op.String())
	var args []program.Value
	for i, t := range types {
		axis := 0
		for axis < len(t.Shape) && t.Shape[axis] == 1 {
			axis++
		}
		// the axes that are not repeated are the last ones of both
		if inner := (program.Type{Shape: n.Type.Shape[axis:]}); t.Size() != n.Type.Size() &&
			(inner.Size() != part || t.Size() != part) {
			return nil, nil
		}
		args = append(args, b.Input(fmt.Sprint("in.", i), program.Type{DType: t.DType,
			Shape: []int{int(part)}}))
	}
	b.Output("out", b.Apply(n.Op, n.Attr, program.Type{DType: n.Type.DType,
		Shape: []int{int(part)}}, args...))
	p, err := b.Build()
	if err != nil {
		return nil, err
	}
	k, err := cpu.CompileFlat(p, nil)
	if err != nil {
		if refused(err) {
			return nil, nil
		}
		return nil, err
	}
	size, count := int(part), int(n.Type.Size()/part)
	return func(in, out []any, parallel loops.Parallel) error {
		some := func(memory any, i int) any {
			v := reflect.ValueOf(memory)
			if v.Len() == size {
				return memory
			}
			return v.Slice(i*size, (i+1)*size).Interface()
		}
		for i := range count {
			if err := k.Run([]any{some(in[0], i), some(in[1], i)}, []any{some(out[0], i)},
				parallel); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (c *compiler) product(n *program.Node) (function, error) {
	left := layoutOf(c.p.TypeOf(n.Args[0]), n.Attr.LhsBatch, n.Attr.LhsContract)
	right := layoutOf(c.p.TypeOf(n.Args[1]), n.Attr.RhsBatch, n.Attr.RhsContract)
	p, err := NewProduct(c.options, left, right)
	if err != nil {
		return nil, err
	}
	return func(in, out []any, parallel loops.Parallel) error {
		return p.Run(Results(out[0], nil), Elements(in[0]), Elements(in[1]), matmul.Scales{}, parallel)
	}, nil
}

func layoutOf(t program.Type, batch, contracted []int) (l matmul.Layout) {
	strides := passes.Strides(t.Shape)
	pick := func(axes []int) (list []matmul.Axis) {
		for _, i := range axes {
			list = append(list, matmul.Axis{Size: t.Shape[i], Stride: strides[i]})
		}
		return list
	}
	l.Batch, l.Contracted = pick(batch), pick(contracted)
	l.Cross = pick(program.OtherAxes(len(t.Shape), batch, contracted))
	return l
}

// move copies elements by their index: those of a slice, a concatenation or a transposition.
func (c *compiler) move(n *program.Node) function {
	to, t := passes.Strides(n.Type.Shape), c.p.TypeOf(n.Args[0])
	from, first := passes.Strides(t.Shape), 0
	strides := make([]int, len(from)) // of the elements that are copied
	switch n.Op {
	case program.OpTranspose:
		if len(t.Shape) == 2 && n.Attr.Axes[0] == 1 && t.DType == program.Float {
			return transpose(t.Shape[0], t.Shape[1])
		}
		for i, axis := range n.Attr.Axes {
			strides[i] = from[axis]
		}
	case program.OpSlice:
		for i, s := range from {
			first += n.Attr.Start[i] * s
			strides[i] = s * n.Attr.Stride[i]
		}
	default:
		return concatenate(lists.Map(n.Args, c.p.TypeOf), n.Attr.Axes[0], to)
	}
	return func(in, out []any, _ loops.Parallel) error {
		copyStrided(out[0], in[0], n.Type.Shape, to, strides, 0, first)
		return nil
	}
}

// concatenate joins tensors along an axis; to are the strides of the result.
func concatenate(types []program.Type, axis int, to []int) function {
	return func(in, out []any, _ loops.Parallel) error {
		first := 0
		for i, t := range types {
			copyStrided(out[0], in[i], t.Shape, to, passes.Strides(t.Shape), first*to[axis], 0)
			first += t.Shape[axis]
		}
		return nil
	}
}

// transpose transposes a matrix in bands of columns, whose tasks write separate rows.
func transpose(rows, columns int) function {
	const band = 32
	return func(in, out []any, parallel loops.Parallel) error {
		src, dst := floats(in[0]), floats(out[0])
		loops.InParts(columns, band, parallel, func(from, to int) {
			loops.Transpose(dst[from*rows:], rows, src[from:], columns, rows, to-from, nil)
		})
		return nil
	}
}

// copyStrided copies elements of shape from one place to another.
func copyStrided(dst, src any, shape, to, from []int, at, first int) {
	switch d := dst.(type) {
	case []float32:
		strided(d[at:], src.([]float32)[first:], shape, to, from)
	case []int32:
		strided(d[at:], src.([]int32)[first:], shape, to, from)
	case []uint32:
		strided(d[at:], src.([]uint32)[first:], shape, to, from)
	case []bool:
		strided(d[at:], src.([]bool)[first:], shape, to, from)
	}
}

func strided[T any](dst, src []T, shape, to, from []int) {
	switch {
	case len(shape) == 0:
		dst[0] = src[0]
	case len(shape) == 1 && to[0] == 1 && from[0] == 1:
		copy(dst[:shape[0]], src[:shape[0]])
	case len(shape) == 1:
		for i := range shape[0] {
			dst[i*to[0]] = src[i*from[0]]
		}
	default:
		for i := range shape[0] {
			strided(dst[i*to[0]:], src[i*from[0]:], shape[1:], to[1:], from[1:])
		}
	}
}

// copyAny copies a slice, unless both are the same memory.
func copyAny(dst, src any) {
	to, from := reflect.ValueOf(dst), reflect.ValueOf(src)
	if to.Pointer() != from.Pointer() {
		reflect.Copy(to, from)
	}
}

// folds returns sums of floats over the first axes, in binary64, or their maxima or minima; nil for
// other reductions.
func (c *compiler) folds(n *program.Node) function {
	t := c.p.TypeOf(n.Args[0])
	for i, axis := range n.Attr.Axes {
		if i != axis {
			return nil
		}
	}
	if t.DType != program.Float {
		return nil
	}
	columns := int(n.Type.Size())
	first := map[program.Op]float64{program.OpReduceMax: math.Inf(-1),
		program.OpReduceMin: math.Inf(1)}[n.Op]
	return func(in, out []any, parallel loops.Parallel) error {
		x, dst := floats(in[0]), floats(out[0])
		const each = 64
		loops.InParts(columns, each, parallel, func(from, to int) {
			var all [each]float64
			for i := range all {
				all[i] = first
			}
			for row := 0; row < len(x); row += columns {
				part := x[row+from : row+to]
				switch n.Op {
				case program.OpReduceMax:
					for i, v := range part {
						all[i] = max(all[i], float64(v))
					}
				case program.OpReduceMin:
					for i, v := range part {
						all[i] = min(all[i], float64(v))
					}
				default:
					for i, v := range part {
						all[i] += float64(v)
					}
				}
			}
			for i := from; i < to; i++ {
				dst[i] = float32(all[i-from])
			}
		})
		return nil
	}
}

// byReference computes an operation by the reference implementation.
func byReference(n *program.Node, types []program.Type) function {
	return func(in, out []any, _ loops.Parallel) error {
		args := make([]reference.Tensor, len(in))
		for i := range in {
			args[i] = toReference(in[i], types[i])
		}
		t, err := reference.Apply(n, args...)
		if err == nil {
			fromReference(out[0], t)
		}
		return err
	}
}

func toReference(memory any, t program.Type) reference.Tensor {
	r := reference.Tensor{Type: t}
	switch m := memory.(type) {
	case []float32:
		r.Floats = lists.Map(m, func(v float32) float64 { return float64(v) })
	case []int32:
		r.Ints = lists.Map(m, func(v int32) int64 { return int64(v) })
	case []uint32:
		r.Ints = lists.Map(m, func(v uint32) int64 { return int64(v) })
	case []bool:
		r.Ints = lists.Map(m, func(v bool) (one int64) {
			if v {
				one = 1
			}
			return one
		})
	default:
		panic(fmt.Errorf("a %T is no tensor", memory))
	}
	return r
}

func fromReference(memory any, t reference.Tensor) {
	switch m := memory.(type) {
	case []float32:
		for i, v := range t.Floats {
			m[i] = float32(v)
		}
	case []int32:
		for i, v := range t.Ints {
			m[i] = int32(v)
		}
	case []uint32:
		for i, v := range t.Ints {
			m[i] = uint32(v)
		}
	case []bool:
		for i, v := range t.Ints {
			m[i] = v != 0
		}
	}
}
