package randprog

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// sizes are the lengths of axes: one element, few, and around the widths of vectors and
// the sides of blocks.
var sizes = []int{1, 1, 1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 64, 70}

// declareAll makes the inputs: tensors of shapes that suit the family of programs, and
// numbers.
func (u *updates) declareAll() {
	size := func() int { return sizes[u.rng.IntN(len(sizes))] }
	u.rows, u.cols, u.parts = size(), size(), 1+u.rng.IntN(3)
	tall := []int{u.parts * u.rows, u.cols}
	shapes := [][]int{tall, tall, tall}
	switch u.Family {
	case Elementwise:
		if u.rng.IntN(4) == 0 { // several tiles, and several units of them
			tall = []int{[]int{2047, 2048, 2049, 4100, 70001}[u.rng.IntN(5)]}
			shapes = [][]int{tall, tall, tall}
		}
	case General:
		shapes = append(shapes, []int{u.cols}, []int{tall[0], 1}, []int{1, u.cols}, []int{u.cols, tall[0]},
			[]int{u.parts, u.rows, u.cols}, []int{u.parts, u.rows, u.cols}, []int{u.rows, u.cols}, []int{u.rows, u.rows})
	}
	u.rng.Shuffle(len(shapes), func(i, j int) { shapes[i], shapes[j] = shapes[j], shapes[i] })
	shapes = append(shapes[:2+u.rng.IntN(len(shapes)-1)], nil, nil)
	if u.Family == Elementwise && u.rng.IntN(8) == 0 {
		shapes = shapes[len(shapes)-2:] // numbers only
	}
	for i, shape := range shapes {
		u.inputOf(fmt.Sprintf("x%d", i), shape)
	}
}

// inputOf adds an input. Its elements lie on a grid, on which sums are exact, or anywhere.
func (u *updates) inputOf(name string, shape []int) {
	v := value{Value: u.b.Input(name, program.FloatType(shape...)), mag: 1, frac: rounded}
	data := make([]float64, v.Type().Size())
	grid := u.rng.IntN(2) == 0
	for i := range data {
		switch {
		case !u.Exact:
			data[i] = float64(float32(u.rng.NormFloat64()))
		case grid:
			data[i] = float64(u.rng.IntN(33)-16) / 4
		default:
			data[i] = float64(float32(u.rng.NormFloat64() * math.Exp(8*u.rng.NormFloat64())))
		}
	}
	if u.Exact {
		u.sprinkle(data, grid)
	}
	if grid && u.Exact {
		v.mag, v.frac = 4, 2
	}
	u.inputs[name] = reference.Floats(data, shape...)
	u.pool = append(u.pool, v)
}

// onGrid and anywhere are the numbers on which executors go wrong. Sums of those on a grid
// are exact.
var (
	onGrid   = []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1)}
	anywhere = append(slices.Clone(onGrid), 1, -1, 0.5, -0.5, 2.5, -2.5, 0x1p-149, -0x1p-149, 0x1p-127, 0x1p-126,
		math.MaxFloat32, -math.MaxFloat32, 4194303.5, -8388609, 1e10)
)

// sprinkle replaces elements by special ones: none, a third, or all by zeros; or just one
// or two, since with many of them no element of a product is finite.
func (u *updates) sprinkle(data []float64, grid bool) {
	list := anywhere
	if grid {
		list = onGrid
	}
	special := func() float64 { return list[u.rng.IntN(len(list))] }
	switch u.rng.IntN(8) {
	case 0:
		clear(data)
	case 1, 2:
		for range 1 + u.rng.IntN(2) {
			data[u.rng.IntN(len(data))] = special()
		}
	case 3:
		for i := range data {
			if u.rng.IntN(3) == 0 {
				data[i] = special()
			}
		}
	}
}
