// Package randprog generates random valid programs with inputs for which they are well conditioned.
// They are for tests that compare two executions of a program.
//
// Executions in different precisions differ by rounding errors. Before a comparison or a
// discontinuous function such as round, such an error can change the result completely. So the
// generator tracks a bound for each float value, and which values are exact: multiples of a power
// of two that fit in 24 bits, and are therefore the same in any precision and summation order.
// Discontinuous operations get only exact values. Domains are respected, too: logarithms get
// positive numbers, and exponentials get small ones. Thus [New] does not cover edge cases (NaN,
// overflow, ties), which need table-driven tests.
//
// [NewUpdate] generates programs for the executors of optimizer updates: inputs are floats,
// including edge cases, operations are of few kinds, and results are defined bit for bit.
package randprog

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Options configures the generated programs. The zero value is a good default.
type Options struct {
	// Nodes is the number of generated operations; the default is 24. Operations that guard another
	// one, such as an absolute value before a logarithm, are not counted.
	Nodes int
	// Elements is the maximum number of elements in a value; the default is 256.
	Elements int
	// Ops lists the operations to draw from; the default is all except factorizations.
	Ops []program.Op
	// Smooth makes programs suitable for testing gradients by finite differences, in float64. Float
	// inputs are drawn from their whole range instead of a grid with ties and exact sums.
	// stop_gradient, bitcast, and quotients that may be infinite are omitted.
	Smooth bool
}

// Case is a program with values for its inputs.
type Case struct {
	Program *program.Program
	Inputs  map[string]reference.Tensor
}

// New generates a case. Equal seeds and options give equal cases. It panics if it generates an
// invalid program.
func New(seed uint64, o Options) Case {
	o.Nodes, o.Elements = cmp.Or(o.Nodes, 24), cmp.Or(o.Elements, 256)
	if o.Ops == nil {
		o.Ops = defaultOps(o.Smooth)
	}
	g := &generator{
		Options: o,
		rng:     rand.New(rand.NewPCG(seed, 0x9E3779B97F4A7C15)),
		b:       program.NewBuilder(fmt.Sprintf("random.%d", seed)),
		inputs:  map[string]reference.Tensor{},
		used:    map[program.Value]bool{},
	}
	g.declare()
	for made, tries := 0, 0; made < o.Nodes && tries < 50*o.Nodes; tries++ {
		op := o.Ops[g.rng.IntN(len(o.Ops))]
		g.drawn = g.drawn[:0]
		move, ok := moves[op]
		if !ok {
			move = general
		}
		if v, ok := try(func() value { return move(g, op) }); ok {
			g.keep(v)
			made++
			for _, a := range g.drawn {
				g.used[a] = true
			}
		}
	}
	g.finish()
	p, err := g.b.Build()
	if err != nil {
		panic(fmt.Sprintf("randprog: seed %d: %v", seed, err))
	}
	return Case{Program: p, Inputs: g.inputs}
}

func defaultOps(smooth bool) []program.Op {
	var ops []program.Op
	for _, info := range program.Ops() {
		unfollowable := info.Op == program.OpStopGradient || info.Op == program.OpBitcast ||
			info.Op == program.OpIsFinite
		if info.Class != program.ClassLinalg && !(smooth && unfollowable) {
			ops = append(ops, info.Op)
		}
	}
	return ops
}

// generator is the state of a program under construction.
type generator struct {
	Options
	rng    *rand.Rand
	b      *program.Builder
	inputs map[string]reference.Tensor
	pool   []value
	// used holds the operands of the operations in the pool, and drawn those of the current move.
	used  map[program.Value]bool
	drawn []program.Value
}

// value is a program value with its bounds. For a float v, |v| ≤ mag, and v is a multiple of
// 2^−frac unless frac is negative; then v is rounded.
type value struct {
	program.Value
	mag  float64
	frac int
}

// rounded is the frac of a float that is not exact.
const rounded = -1

func (v value) float() bool { return v.Type().DType == program.Float }
func (v value) exact() bool { return v.frac != rounded }

// keep adds a value to the pool after scaling it as tame does.
func (g *generator) keep(v value) { g.pool = append(g.pool, g.tame(v)) }

// tame scales a float by a power of two so that its bound is at most 64. It marks the float as
// rounded if 24 bits may be too few for it.
func (g *generator) tame(v value) value {
	if !v.float() {
		return v
	}
	factor := 1.0
	for ; v.mag > 64; v.mag /= 2 {
		factor /= 2
		if v.exact() {
			v.frac++
		}
	}
	if factor != 1 {
		v.Value = v.Scale(factor)
	}
	if v.exact() && !fits(v.mag, v.frac) {
		v.frac = rounded
	}
	return v
}

// fits reports whether every multiple of 2^−frac up to mag has at most 22 bits.
func fits(mag float64, frac int) bool {
	for range frac {
		mag *= 2
	}
	return mag <= 1<<22
}

// declare creates the inputs: floats of compatible shapes, and some of each other type.
func (g *generator) declare() {
	rows, cols := 1+g.rng.IntN(5), []int{1, 2, 4, 6, 8}[g.rng.IntN(5)]
	shapes := [][]int{{rows, cols}, {rows, cols}, {rows, 1}, {cols, rows}, {cols}, {}, {2, rows, cols}}
	for i, shape := range shapes[:2+g.rng.IntN(len(shapes)-1)] {
		g.input(fmt.Sprintf("x%d", i), program.FloatType(shape...))
	}
	g.input("i", program.Type{DType: program.Int, Shape: []int{rows, cols}})
	g.input("u", program.Type{DType: program.Uint, Shape: []int{rows, cols}})
	g.input("b", program.Type{DType: program.Bool, Shape: []int{rows, cols}})
	g.input("key", program.Type{DType: program.Uint, Shape: []int{2}})
}

func (g *generator) input(name string, t program.Type) {
	v := value{Value: g.b.Input(name, t)}
	n := int(t.Size())
	switch t.DType {
	case program.Float:
		data := make([]float64, n)
		for i := range data {
			if g.Smooth {
				data[i] = 8*g.rng.Float64() - 4
			} else {
				data[i] = float64(g.rng.IntN(65)-32) / 8
			}
		}
		v.mag, v.frac = 4, 3
		g.inputs[name] = reference.Floats(data, t.Shape...)
	default:
		data := make([]int64, n)
		for i := range data {
			switch bits := int64(g.rng.Uint32()); t.DType {
			case program.Int:
				data[i] = int64(int32(bits)) >> g.rng.IntN(32)
			case program.Uint:
				data[i] = bits >> g.rng.IntN(32)
			default:
				data[i] = bits & 1
			}
		}
		g.inputs[name] = reference.Tensor{Type: t, Ints: data}
	}
	g.pool = append(g.pool, v)
}

// finish makes every unused value an output, with floats first.
func (g *generator) finish() {
	n := 0
	for _, float := range []bool{true, false} {
		for i, v := range g.pool {
			isInput := i < len(g.inputs)
			if v.float() == float && !isInput && !g.used[v.Value] {
				g.b.Output(fmt.Sprintf("y%d", n), v.Value)
				n++
			}
		}
	}
	if n == 0 {
		g.b.Output("y0", g.pool[0].Value)
	}
}

// unsuitable is the panic value of [generator.giveUp].
type unsuitable struct{}

// giveUp ends a move that has no suitable operands or result.
func (g *generator) giveUp() { panic(unsuitable{}) }

// try performs a move and reports whether it succeeded.
func try(f func() value) (v value, ok bool) {
	defer func() {
		r := recover()
		if _, gaveUp := r.(unsuitable); r != nil && !gaveUp {
			panic(r)
		}
	}()
	return f(), true
}

// draw returns a random value that meets the conditions. It gives up if there is none.
func (g *generator) draw(meets ...func(value) bool) value {
	v, ok := g.find(meets...)
	if !ok {
		g.giveUp()
	}
	return v
}

// find returns a random value that meets the conditions, if there is one. Recent values are more
// likely, so that programs become deep.
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

// compatible returns a condition for values that can be combined elementwise with x within the size
// limit.
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

// Bytes returns a source of random numbers for fuzzing. Each number is determined by one byte of
// data, so that changing a byte changes one choice. After the last byte, numbers come from a seeded
// generator.
func Bytes(data []byte) *rand.Rand {
	return rand.New(&bytes{data: data, rest: rand.NewPCG(uint64(len(data)), 5)})
}

type bytes struct {
	data []byte
	rest *rand.PCG
}

// Uint64 returns the byte in the highest bits, because these determine a draw from a small range.
func (b *bytes) Uint64() uint64 {
	low := b.rest.Uint64()
	if len(b.data) == 0 {
		return low
	}
	top := uint64(b.data[0])
	b.data = b.data[1:]
	return top<<56 | low>>8
}
