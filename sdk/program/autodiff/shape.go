package autodiff

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// unrepeat reverses the implicit broadcast of an elementwise operand of type want:
// it sums v over the axes that the operand lacks or has with size 1.
func (t *tape) unrepeat(v program.Value, want program.Type) program.Value {
	shape := v.Shape()
	if slices.Equal(shape, want.Shape) {
		return v
	}
	var axes []int
	for i, d := range shape {
		if want.IsScalar() || want.Shape[i] != d {
			axes = append(axes, i)
		}
	}
	return t.reshape(t.sum(v, axes), want.Shape)
}

func (t *tape) broadcasted(n *program.Node, x, _, dy program.Value) program.Value {
	shape, axes := x.Shape(), program.OtherAxes(n.Type.Rank(), n.Attr.Axes)
	for i, a := range n.Attr.Axes {
		if shape[i] != n.Type.Shape[a] {
			axes = append(axes, a)
		}
	}
	slices.Sort(axes)
	return t.reshape(t.sum(dy, axes), shape)
}

// unslice scatters dy into zeros of the shape of x: index i of each axis goes to start + i·stride.
func (t *tape) unslice(n *program.Node, x, _, dy program.Value) program.Value {
	attr := n.Attr
	for axis, size := range x.Shape() {
		dy = t.spread(dy, axis, attr.Stride[axis])
		covered := dy.Shape()[axis]
		if end := attr.Start[axis] + covered; end > size { // zeros behind the last element
			dy = t.slice(dy, axis, 0, covered-(end-size))
			covered = size - attr.Start[axis]
		}
		dy = t.pad(dy, axis, attr.Start[axis], size-attr.Start[axis]-covered)
	}
	return dy
}

// spread inserts stride−1 zeros after each element along the axis.
func (t *tape) spread(v program.Value, axis, stride int) program.Value {
	shape := v.Shape()
	if stride == 1 || shape[axis] == 1 {
		return v
	}
	outer, inner := 1, 1
	for _, d := range shape[:axis] {
		outer *= d
	}
	for _, d := range shape[axis+1:] {
		inner *= d
	}
	v = t.pad(t.reshape(v, []int{outer * shape[axis], 1, inner}), 1, 0, stride-1)
	shape[axis] *= stride
	return t.reshape(v, shape)
}

func (t *tape) pad(v program.Value, axis, before, after int) program.Value {
	zeros := func(n int) []program.Value {
		if n == 0 {
			return nil
		}
		shape := v.Shape()
		shape[axis] = n
		return []program.Value{t.w.Apply(program.OpConstant, program.Attr{Floats: []float64{0}}, program.FloatType(shape...))}
	}
	parts := slices.Concat(zeros(before), []program.Value{v}, zeros(after))
	return t.w.Apply(program.OpConcatenate, program.Attr{Axes: []int{axis}}, program.Type{}, parts...)
}

func (t *tape) concatenated(n *program.Node, _ program.ID, dy program.Value) {
	axis, start := n.Attr.Axes[0], 0
	for _, id := range n.Args {
		limit := start + t.p.TypeOf(id).Shape[axis]
		if t.active[id] {
			t.add(id, t.slice(dy, axis, start, limit))
		}
		start = limit
	}
}

// slice takes the elements start … limit−1 along one axis.
func (t *tape) slice(v program.Value, axis, start, limit int) program.Value {
	shape := v.Shape()
	attr := program.Attr{Start: make([]int, len(shape)), Limit: shape, Stride: slices.Repeat([]int{1}, len(shape))}
	attr.Start[axis], attr.Limit[axis] = start, limit
	return t.w.Apply(program.OpSlice, attr, program.Type{}, v)
}

func (t *tape) reshape(v program.Value, shape []int) program.Value {
	return t.w.Apply(program.OpReshape, program.Attr{}, program.FloatType(shape...), v)
}

func (t *tape) transpose(v program.Value, perm []int) program.Value {
	return t.w.Apply(program.OpTranspose, program.Attr{Axes: perm}, program.Type{}, v)
}

func (t *tape) sum(v program.Value, axes []int) program.Value {
	if len(axes) == 0 {
		return v
	}
	return t.w.Apply(program.OpReduceSum, program.Attr{Axes: axes}, program.Type{}, v)
}

func inverse(perm []int) []int {
	out := make([]int, len(perm))
	for i, a := range perm {
		out[a] = i
	}
	return out
}
