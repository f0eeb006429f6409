package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/cage-qat/cage/sdk/program"
)

// A generator writes random programs whose results are defined to the last bit: zeros of undefined
// sign become positive, sums are of small integers, and inputs of clamps are not NaN.
type generator struct {
	rng   *rand.Rand
	b     *program.Builder
	shape []int
	// floats and bools are the values that operations can use, tensors and scalars.
	floats, bools []program.Value
}

// shapes gives single elements, tiles that are not full, and several units of tiles.
var shapes = [][]int{{1}, {1, 1}, {2}, {15}, {16}, {17}, {3, 5}, {255}, {33, 62}, {2047}, {2048},
	{2049}, {41, 100}, {70001}, {7, 1, 9}}

// randomProgram returns a program of random operations on tensors a, b, c and scalars s, t. Two of
// its outputs have the names of inputs.
func randomProgram(seed uint64, shape []int) *program.Program {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 3)),
		b: program.NewBuilder(fmt.Sprint("random.", seed)), shape: shape}
	for _, name := range []string{"a", "b", "c"} {
		g.floats = append(g.floats, g.b.Input(name, program.FloatType(shape...)))
	}
	for _, name := range []string{"s", "t"} {
		g.floats = append(g.floats, g.b.Input(name, program.FloatType()))
	}
	for range 4 + g.rng.IntN(30) {
		g.step()
	}
	for i, name := range []string{"b", "new", "a", "last"} {
		v := g.floats[len(g.floats)-1-i]
		if i%2 == 1 {
			v = g.float()
		}
		g.b.Output(name, g.full(v))
	}
	g.b.Output("number", g.largest(g.full(g.float())))
	p, err := g.b.Build()
	if err != nil {
		panic(err)
	}
	return p
}

// full repeats a scalar, so that every output is a tensor.
func (g *generator) full(v program.Value) program.Value {
	if v.Type().IsScalar() {
		return v.Broadcast(g.shape, nil)
	}
	return v
}

func (g *generator) float() program.Value {
	if g.rng.IntN(12) == 0 {
		return g.b.Const([]float64{0, 1, -1, 0.5, 3, 1e-38, math.Inf(1), math.NaN(),
			math.Copysign(0, -1)}[g.rng.IntN(9)])
	}
	return g.floats[g.rng.IntN(len(g.floats))]
}

func (g *generator) bool() program.Value {
	if len(g.bools) == 0 {
		return g.float().Lt(g.float())
	}
	return g.bools[g.rng.IntN(len(g.bools))]
}

// positive gives a zero the positive sign.
func (g *generator) positive(v program.Value) program.Value { return v.Add(g.b.Const(0)) }

// abs returns |v|. A zero is positive, because the sign of zeros is undefined.
func (g *generator) abs(v program.Value) program.Value { return g.positive(v.Abs()) }

func (g *generator) finite(v program.Value) program.Value {
	return v.IsFinite().Select(v, g.b.Const(0.25))
}

func (g *generator) step() {
	switch k := g.rng.IntN(10); {
	case k < 5:
		g.floats = append(g.floats, g.arithmetic())
	case k < 7:
		g.floats = append(g.floats, g.function())
	case k < 8:
		g.floats = append(g.floats, g.whole())
	default:
		g.bools = append(g.bools, g.truth())
	}
}

func (g *generator) arithmetic() program.Value {
	x, y := g.float(), g.float()
	switch g.rng.IntN(9) {
	case 0:
		return x.Add(y)
	case 1:
		return x.Sub(y)
	case 2:
		return x.Mul(y)
	case 3:
		return x.Div(y)
	case 4: // fused by passes
		return x.Scale(0.9).Add(y.Square().Scale(0.1))
	case 5:
		return x.Sub(y.Mul(g.float()))
	case 6:
		return g.abs(x).Sqrt().Scale(3).Shift(1e-8)
	case 7:
		return g.positive(x.Max(y))
	default:
		return g.positive(x.Min(y))
	}
}

func (g *generator) function() program.Value {
	x := g.float()
	switch g.rng.IntN(12) {
	case 0:
		return x.Neg()
	case 1:
		return g.abs(x)
	case 2:
		return x.Sign()
	case 3:
		return x.Sqrt()
	case 4:
		return x.Expm1()
	case 5:
		return x.Log()
	case 6:
		return x.Log1p()
	case 7:
		return x.Floor()
	case 8:
		return g.positive(x.Round())
	case 9:
		return g.abs(x).Pow(g.float())
	case 10:
		return g.positive(g.finite(x).Clip(-0.5, 2))
	default:
		return x.Reshape(x.Shape()...).StopGradient()
	}
}

// whole returns a value that depends on all elements, a selection or a conversion.
func (g *generator) whole() program.Value {
	x := g.full(g.float())
	switch g.rng.IntN(6) {
	case 0:
		return g.largest(x)
	case 1:
		return x.Sign().IsFinite().Select(x.Sign(), g.b.Const(2)).SumAll()
	case 2: // rows are summed first
		v := x.IsFinite().Convert(program.Float)
		return v.ReduceSum(len(g.shape) - 1).SumAll()
	case 3:
		return x.Abs().ReduceMin(axes(g.shape)...).IsFinite().Select(x, g.float())
	case 4:
		return g.bool().Select(g.float(), g.float())
	default:
		return g.bool().Convert(program.Float)
	}
}

// largest returns the largest magnitude. A zero is positive.
func (g *generator) largest(x program.Value) program.Value {
	return g.abs(x).ReduceMax(axes(g.shape)...)
}

func axes(shape []int) []int {
	list := make([]int, len(shape))
	for i := range list {
		list[i] = i
	}
	return list
}

func (g *generator) truth() program.Value {
	x, y := g.float(), g.float()
	p, q := g.bool(), g.bool()
	switch g.rng.IntN(14) {
	case 0:
		return x.Lt(y)
	case 1:
		return x.Le(y)
	case 2:
		return x.Gt(y)
	case 3:
		return x.Ge(y)
	case 4:
		return x.Eq(y)
	case 5:
		return x.Ne(y)
	case 6:
		return p.And(q)
	case 7:
		return p.Or(q)
	case 8:
		return p.Xor(q)
	case 9:
		return p.Not()
	case 10:
		return p.Eq(q)
	case 11:
		return p.Ne(q)
	case 12:
		return x.Convert(program.Bool)
	default:
		return x.IsFinite()
	}
}

// specials are numbers that often expose errors in loops.
var specials = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-45, -1e-45, 1e-39,
	1.1754944e-38,
	math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)),
	float32(math.NaN()), 4194303.5, -8388609, 1e10,
}

// numbers draws n elements, a third of them special if wild is set.
func numbers(rng *rand.Rand, n int, wild bool) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(rng.NormFloat64())
		if wild && rng.IntN(3) == 0 {
			list[i] = specials[rng.IntN(len(specials))]
		}
	}
	return list
}
