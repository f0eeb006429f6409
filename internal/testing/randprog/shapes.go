package randprog

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// shape draws a shape of at most three axes within the size limit.
func (g *generator) shape() []int {
	shape := make([]int, g.rng.IntN(4))
	size := 1
	for i := range shape {
		shape[i] = 1 + g.rng.IntN(4)
		if size*shape[i] > g.Elements {
			shape[i] = 1
		}
		size *= shape[i]
	}
	return shape
}

func constant(g *generator, op program.Op) value {
	t := program.Type{DType: program.DType(1 + g.rng.IntN(4)), Shape: g.shape()}
	n := 1
	if g.rng.IntN(2) == 0 {
		n = int(t.Size())
	}
	var attr program.Attr
	for range n {
		switch t.DType {
		case program.Float:
			attr.Floats = append(attr.Floats, float64(g.rng.IntN(33)-16)/4)
		case program.Int:
			attr.Ints = append(attr.Ints, int64(g.rng.IntN(200)-100))
		case program.Uint:
			attr.Ints = append(attr.Ints, int64(g.rng.Uint32()))
		default:
			attr.Ints = append(attr.Ints, int64(g.rng.IntN(2)))
		}
	}
	return value{g.b.Apply(op, attr, t), 4, 2}
}

func iota(g *generator, op program.Op) value {
	t := program.Type{DType: program.DType(1 + g.rng.IntN(3)),
		Shape: append(g.shape(), 1+g.rng.IntN(4))}
	if t.Size() > int64(g.Elements) {
		g.giveUp()
	}
	axis := g.rng.IntN(t.Rank())
	return value{g.b.Apply(op, program.Attr{Axes: []int{axis}}, t), float64(t.Shape[axis]), 0}
}

func randomBits(g *generator, op program.Op) value {
	key := g.draw(func(v value) bool {
		return v.Type().Equal(program.Type{DType: program.Uint,
			Shape: []int{2}})
	})
	return value{Value: g.b.Apply(op, program.Attr{},
		program.Type{DType: program.Uint, Shape: g.shape()}, key.Value)}
}

// reshape merges two adjacent axes, or adds or removes an axis of size 1.
func reshape(g *generator, op program.Op) value {
	x := g.draw()
	shape := x.Shape()
	switch at := g.rng.IntN(len(shape) + 1); {
	case at+1 < len(shape) && g.rng.IntN(2) == 0:
		shape = slices.Replace(shape, at, at+2, shape[at]*shape[at+1])
	case at < len(shape) && shape[at] == 1:
		shape = slices.Delete(shape, at, at+1)
	case len(shape) < 4:
		shape = slices.Insert(shape, at, 1)
	}
	return value{g.b.Apply(op, program.Attr{}, program.Type{Shape: shape}, x.Value), x.mag, x.frac}
}

func transpose(g *generator, op program.Op) value {
	x := g.draw()
	perm := g.rng.Perm(x.Type().Rank())
	return value{g.b.Apply(op, program.Attr{Axes: perm}, program.Type{}, x.Value), x.mag, x.frac}
}

// broadcast expands axes of size 1 and inserts new axes.
func broadcast(g *generator, op program.Op) value {
	x := g.draw()
	var shape, axes []int
	size := x.Type().Size()
	grow := func() int {
		d := 1 + g.rng.IntN(3)
		if size *= int64(d); size > int64(g.Elements) || len(shape) >= 4 {
			return 0
		}
		return d
	}
	for i, d := range x.Shape() {
		if g.rng.IntN(3) == 0 {
			if n := grow(); n > 0 && len(shape)+x.Type().Rank()-i < 5 {
				shape = append(shape, n)
			}
		}
		if d == 1 {
			d = max(1, grow())
		}
		axes = append(axes, len(shape))
		shape = append(shape, d)
	}
	if n := grow(); n > 0 {
		shape = append(shape, n)
	}
	return value{g.b.Apply(op, program.Attr{Axes: axes}, program.Type{Shape: shape}, x.Value), x.mag,
		x.frac}
}

func slice(g *generator, op program.Op) value {
	x := g.draw(hasAxes)
	var attr program.Attr
	for _, d := range x.Shape() {
		start := g.rng.IntN(d)
		attr.Start = append(attr.Start, start)
		attr.Limit = append(attr.Limit, start+1+g.rng.IntN(d-start))
		attr.Stride = append(attr.Stride, 1+g.rng.IntN(3))
	}
	return value{g.b.Apply(op, attr, program.Type{}, x.Value), x.mag, x.frac}
}

func concatenate(g *generator, op program.Op) value {
	x := g.draw(hasAxes)
	axis := g.rng.IntN(x.Type().Rank())
	out := value{mag: x.mag, frac: x.frac}
	args := []program.Value{x.Value}
	size := x.Type().Size()
	for range g.rng.IntN(3) {
		y := g.draw(typed(x.Type().DType), func(y value) bool {
			a, b := x.Shape(), y.Shape()
			return len(a) == len(b) && slices.Equal(slices.Delete(a, axis, axis+1),
				slices.Delete(b, axis, axis+1))
		})
		if size += y.Type().Size(); size > int64(g.Elements) {
			break
		}
		args = append(args, y.Value)
		out.mag = max(out.mag, y.mag)
		if out.frac = max(out.frac, y.frac); !x.exact() || !y.exact() {
			out.frac, x.frac = rounded, rounded
		}
	}
	out.Value = g.b.Apply(op, program.Attr{Axes: []int{axis}}, program.Type{}, args...)
	return out
}

func reduce(g *generator, op program.Op) value {
	x := g.draw(hasAxes, isNumber)
	rank := x.Type().Rank()
	axes := g.rng.Perm(rank)[:1+g.rng.IntN(rank)]
	slices.Sort(axes)
	out := value{g.b.Apply(op, program.Attr{Axes: axes}, program.Type{}, x.Value), x.mag, x.frac}
	if op == program.OpReduceSum {
		for _, a := range axes {
			out.mag *= float64(x.Shape()[a])
		}
	}
	return out
}

// dot pairs axes of equal size at random, as contracted or batch axes.
func dot(g *generator, op program.Op) value {
	x := g.draw(isFloat)
	y := g.draw(isFloat)
	var attr program.Attr
	size, terms := x.Type().Size()*y.Type().Size(), 1
	free := g.rng.Perm(y.Type().Rank())
	for _, l := range g.rng.Perm(x.Type().Rank()) {
		d := x.Shape()[l]
		at := slices.IndexFunc(free, func(r int) bool { return y.Shape()[r] == d })
		if at < 0 {
			continue
		}
		r := free[at]
		free = slices.Delete(free, at, at+1)
		switch g.rng.IntN(4) {
		case 0, 1:
			attr.LhsContract, attr.RhsContract = append(attr.LhsContract, l), append(attr.RhsContract, r)
			size /= int64(d * d)
			terms *= d
		case 2:
			attr.LhsBatch, attr.RhsBatch = append(attr.LhsBatch, l), append(attr.RhsBatch, r)
			size /= int64(d)
		}
	}
	pairs := len(attr.LhsContract)*2 + len(attr.LhsBatch)
	if size > int64(g.Elements) || x.Type().Rank()+y.Type().Rank()-pairs > 5 {
		g.giveUp()
	}
	out := value{g.b.Apply(op, attr, program.Type{}, x.Value, y.Value),
		x.mag * y.mag * float64(terms), rounded}
	if x.exact() && y.exact() && fits(out.mag, x.frac+y.frac) {
		out.frac = x.frac + y.frac
	}
	return out
}

func hadamard(g *generator, op program.Op) value {
	x := g.draw(isFloat, hasAxes)
	last := x.Shape()[x.Type().Rank()-1]
	block := 1
	for last%(2*block) == 0 && g.rng.IntN(4) > 0 {
		block *= 2
	}
	out := value{g.b.Apply(op, program.Attr{Block: block}, program.Type{}, x.Value),
		x.mag * math.Sqrt(float64(block)), rounded}
	return out
}

// factorize applies op to a symmetric full-rank matrix made from any matrix.
func factorize(g *generator, op program.Op) value {
	x := g.draw(isFloat, func(v value) bool { return v.Type().Rank() == 2 })
	eye := compareIndices(g.b, x.Shape()[0], program.OpEq)
	gram := x.Dot(x.Value, [2][]int{{1}, {1}}, [2][]int{}).Add(eye.Scale(8))
	return value{g.unary(op, value{Value: gram}), x.mag*x.mag*float64(x.Shape()[1]) + 8, rounded}
}

// compareIndices returns an n×n matrix that is 1 where op holds for the row and column index, and 0
// elsewhere.
func compareIndices(b *program.Builder, n int, op program.Op) program.Value {
	index := program.Type{DType: program.Int, Shape: []int{n, n}}
	return b.Apply(op, program.Attr{}, program.Type{}, b.Iota(index, 0),
		b.Iota(index, 1)).Convert(program.Float)
}

// sortColumns sorts a matrix by its first row. The row is exact, because rounding must not change
// the order.
func sortColumns(g *generator, _ program.Op) value {
	x := g.draw(isExact, func(v value) bool { return v.Type().Rank() == 2 })
	n := x.Shape()[1]
	keys := x.Slice([]int{0, 0}, []int{1, n}, []int{1, 1}).Reshape(n)
	return value{x.SortColumns(keys), x.mag, x.frac}
}
