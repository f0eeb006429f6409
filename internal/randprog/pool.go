package randprog

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// unsuitable is what [generator.giveUp] panics with.
type unsuitable struct{}

// giveUp ends a move: the pool has no operands that suit, or the result would not.
func (g *generator) giveUp() { panic(unsuitable{}) }

// try makes a move, and reports whether it was not given up.
func try(f func() value) (v value, ok bool) {
	defer func() {
		r := recover()
		if _, gaveUp := r.(unsuitable); r != nil && !gaveUp {
			panic(r)
		}
	}()
	return f(), true
}

// draw takes a random value that meets the conditions, or gives up.
func (g *generator) draw(meets ...func(value) bool) value {
	v, ok := g.find(meets...)
	if !ok {
		g.giveUp()
	}
	return v
}

// find takes a random value that meets the conditions, if there is one. Late values are
// likelier, so that programs grow deep.
func (g *generator) find(meets ...func(value) bool) (value, bool) {
	var fit []value
	for _, v := range g.pool {
		if !slices.ContainsFunc(meets, func(meet func(value) bool) bool { return !meet(v) }) {
			fit = append(fit, v)
		}
	}
	if len(fit) == 0 {
		return value{}, false
	}
	i := max(g.rng.IntN(len(fit)), g.rng.IntN(len(fit)))
	g.drawn = append(g.drawn, fit[i].Value)
	return fit[i], true
}

func isFloat(v value) bool { return v.float() }
func isExact(v value) bool { return v.float() && v.exact() }
func isInteger(v value) bool {
	return v.Type().DType == program.Int || v.Type().DType == program.Uint
}
func isBool(v value) bool    { return v.Type().DType == program.Bool }
func isNumber(v value) bool  { return !isBool(v) }
func isScalar(v value) bool  { return v.Type().IsScalar() }
func hasAxes(v value) bool   { return !v.Type().IsScalar() }
func isLogical(v value) bool { return !v.float() }

func typed(t program.DType) func(value) bool {
	return func(v value) bool { return v.Type().DType == t }
}

// compatible accepts values whose shape can stand beside x in an elementwise
// operation without leaving the size limit.
func (g *generator) compatible(x value) func(value) bool {
	return func(y value) bool {
		a, b := x.Shape(), y.Shape()
		if len(a) == 0 || len(b) == 0 {
			return true
		}
		if len(a) != len(b) {
			return false
		}
		size := 1
		for i := range a {
			if a[i] != b[i] && a[i] != 1 && b[i] != 1 {
				return false
			}
			size *= max(a[i], b[i])
		}
		return size <= g.Elements
	}
}
