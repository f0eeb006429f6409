package randprog

import (
	"github.com/cage-qat/cage/sdk/program"
)

// nearest searches a table of numbers, or of vectors as long as rows of x, on a grid on which
// squared distances are exact.
func nearest(g *generator, op program.Op) value {
	x := g.draw(isExact, func(v value) bool { return v.frac <= 8 })
	n, shape := 1+g.rng.IntN(5), x.Shape()
	row := 1
	table := []int{n}
	if len(shape) > 0 && g.rng.IntN(2) == 0 {
		row = shape[len(shape)-1]
		table = append(table, row)
	}
	data := make([]float64, n*row)
	for i := range data {
		data[i] = float64(g.rng.IntN(33)-16) / 4
	}
	if reach := x.mag + 4; !fits(reach*reach*float64(row), 2*max(x.frac, 2)) {
		g.giveUp()
	}
	return value{Value: g.b.Apply(op, program.Attr{}, program.Type{}, x.Value,
		g.b.Table(data, table...))}
}

// lookup takes any integers as indices, because they are clamped to the table.
func lookup(g *generator, op program.Op) value {
	index := g.draw(typed(program.Int))
	table := g.draw(isFloat, func(v value) bool {
		rank := v.Type().Rank()
		row := v.Type().Size() / int64(max(1, append(v.Shape(), 1)[0]))
		return (rank == 1 || rank == 2) && index.Type().Size()*row <= int64(g.Elements) &&
			index.Type().Rank()+rank <= 5
	})
	return value{g.b.Apply(op, program.Attr{}, program.Type{}, index.Value, table.Value), table.mag,
		table.frac}
}

// scatterAdd takes integers from the pool as indices or, if none have the right shape, an iota.
func scatterAdd(g *generator, op program.Op) value {
	x := g.draw(isFloat)
	shape := x.Shape()
	to := []int{1 + g.rng.IntN(4)}
	if len(shape) > 0 && g.rng.IntN(2) == 0 {
		to = append(to, shape[len(shape)-1])
		shape = shape[:len(shape)-1]
	}
	t := program.Type{DType: program.Int, Shape: shape}
	var index program.Value
	if v, ok := g.find(func(v value) bool { return v.Type().Equal(t) }); ok {
		index = v.Value
	} else if len(shape) > 0 {
		index = g.b.Iota(t, g.rng.IntN(len(shape)))
	} else {
		index = g.b.ConstInt(int32(g.rng.IntN(4)))
	}
	out := value{g.b.Apply(op, program.Attr{}, program.FloatType(to...), index, x.Value),
		x.mag * float64(t.Size()), x.frac}
	if !fits(out.mag, max(0, x.frac)) {
		out.frac = rounded
	}
	return out
}

// topK takes exact numbers, because rounding must not change their order.
func topK(g *generator, op program.Op) value {
	x := g.draw(isExact, hasAxes)
	return value{Value: g.b.Apply(op, program.Attr{}, program.Type{}, x.Value, g.place(x))}
}

func orderStatistic(g *generator, op program.Op) value {
	x := g.draw(isFloat, hasAxes)
	return value{g.b.Apply(op, program.Attr{}, program.Type{}, x.Value, g.place(x)), x.mag, x.frac}
}

// place draws an index along the last axis, or one just outside it.
func (g *generator) place(x value) program.Value {
	shape := x.Shape()
	return g.b.ConstInt(int32(g.rng.IntN(shape[len(shape)-1]+3) - 1))
}
