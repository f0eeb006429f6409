package randprog

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Family is a set of operations for update programs. It determines which executors can run them.
type Family string

const (
	// Elementwise programs have tensors of equal size, scalars, and reductions of whole tensors, as
	// in Adam's updates.
	Elementwise Family = "elementwise"
	// General programs also have products (of matrices and stacks of them, as in Muon's updates,
	// and over any axes), row reductions, broadcasts, transpositions and slices.
	General Family = "general"
)

// Families lists all families.
var Families = []Family{Elementwise, General}

// UpdateOptions configures the programs of [NewUpdate].
type UpdateOptions struct {
	Family Family
	// Exact selects programs with results defined bit for bit, even if an executor rounds every
	// result to float32 and sums in any order: sums and products are of small multiples of powers
	// of two, and all else is correctly rounded. Inputs include NaN, infinities, zeros of both
	// signs, and the smallest and largest numbers. Otherwise, programs are smooth and have rounding
	// errors; they contain sums of normally distributed numbers, roots and logarithms.
	Exact bool
}

// NewUpdate generates an optimizer-like program with inputs, all of them floats. An output with the
// name of an input overwrites it. Axes of size 1 are as likely as others. It panics if it generates
// an invalid program.
func NewUpdate(rng *rand.Rand, o UpdateOptions) Case {
	u := &updates{UpdateOptions: o, generator: &generator{
		Options: Options{Elements: 1 << 14},
		rng:     rng,
		b:       program.NewBuilder(fmt.Sprintf("update/%s", o.Family)),
		inputs:  map[string]reference.Tensor{},
		used:    map[program.Value]bool{},
	}}
	u.declareAll()
	for range 3 + rng.IntN(22) {
		u.step()
	}
	u.finishAll()
	p, err := u.b.Build()
	if err != nil {
		panic(fmt.Sprintf("randprog: %v", err))
	}
	return Case{Program: p, Inputs: u.inputs}
}

// updates is an update program under construction. In an exact program, a value whose frac is
// rounded still has defined bits but must not be summed. In a smooth program, mag is the typical
// size of elements.
type updates struct {
	UpdateOptions
	*generator
	rows, cols, parts int
}

// step generates one operation, or a few related ones.
func (u *updates) step() {
	list := elementwiseMoves
	if u.Family == General {
		list = [][]updateMove{elementwiseMoves, productMoves, generalMoves}[u.rng.IntN(3)]
	}
	move := list[u.rng.IntN(len(list))]
	if v, ok := try(func() value { return move(u) }); ok {
		u.add(v)
	}
}

// add adds a value to the pool, scaled for use in later operations.
func (u *updates) add(v value) {
	if v.float() && !u.Exact {
		factor := 1.0
		for ; v.mag > 4; v.mag /= 4 {
			factor /= 4
		}
		for ; v.mag < 0.25; v.mag *= 4 {
			factor *= 4
		}
		if factor != 1 {
			v.Value = v.Scale(factor)
		}
	}
	u.pool = append(u.pool, v)
}

// finishAll chooses outputs among the recent values. More than half of them overwrite an input of
// their type if there is one.
func (u *updates) finishAll() {
	free := map[string]program.Type{}
	var names []string
	for _, v := range u.pool[:len(u.inputs)] {
		name := fmt.Sprintf("x%d", len(names))
		free[name] = v.Type()
		names = append(names, name)
	}
	for i := range 1 + u.rng.IntN(5) {
		v := u.draw(isFloat)
		out := fmt.Sprintf("y%d", i)
		for _, name := range names {
			if t, ok := free[name]; ok && t.Equal(v.Type()) && u.rng.IntN(3) > 0 {
				out = name
				delete(free, name)
				break
			}
		}
		u.b.Output(out, v.Value)
	}
}

// sizes are the lengths of axes: 1, small sizes, and sizes near vector widths and block sizes.
var sizes = []int{1, 1, 1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 64, 70}

// declareAll creates the inputs: tensors with shapes that depend on the family, and scalars.
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
		shapes = append(shapes, []int{u.cols}, []int{tall[0], 1}, []int{1, u.cols},
			[]int{u.cols, tall[0]},
			[]int{u.parts, u.rows, u.cols}, []int{u.parts, u.rows, u.cols}, []int{u.rows, u.cols},
			[]int{u.rows, u.rows})
	}
	u.rng.Shuffle(len(shapes), func(i, j int) { shapes[i], shapes[j] = shapes[j], shapes[i] })
	shapes = append(shapes[:2+u.rng.IntN(len(shapes)-1)], nil, nil)
	if u.Family == Elementwise && u.rng.IntN(8) == 0 {
		shapes = shapes[len(shapes)-2:] // scalars only
	}
	for i, shape := range shapes {
		u.inputOf(fmt.Sprintf("x%d", i), shape)
	}
}

// inputOf adds an input. Its elements are arbitrary, or on a grid on which sums are exact.
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

// onGrid and anywhere are numbers that are likely to reveal errors in executors. Sums of numbers in
// onGrid are exact.
var (
	onGrid   = []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1)}
	anywhere = append(slices.Clone(onGrid), 1, -1, 0.5, -0.5, 2.5, -2.5, 0x1p-149, -0x1p-149,
		0x1p-127, 0x1p-126,
		math.MaxFloat32, -math.MaxFloat32, 4194303.5, -8388609, 1e10)
)

// sprinkle sometimes replaces elements: all by zeros, or one, two or a third by special values.
// Usually there are few, because with many, no element of a product would be finite.
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
