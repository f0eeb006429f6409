package randprog

import (
	"fmt"
	"math/rand/v2"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Family says which operations an update program consists of, and so which executors it
// is for.
type Family string

const (
	// Elementwise programs have tensors of equal size, scalars, and reductions of whole
	// tensors: updates like Adam's.
	Elementwise Family = "elementwise"
	// General programs also have products (of matrices and stacks of them, as in Muon's
	// updates, and over any axes), reductions of rows, broadcasts, transpositions and
	// slices.
	General Family = "general"
)

// Families lists all families.
var Families = []Family{Elementwise, General}

// UpdateOptions shapes the programs of [NewUpdate].
type UpdateOptions struct {
	Family Family
	// Exact programs are defined to the bit, even for an executor that rounds every
	// result to binary32 and sums in any order: sums and products are of small multiples
	// of powers of two, and everything else is correctly rounded. Their inputs include
	// NaN, infinities, zeros of both signs, and numbers from the smallest to the largest.
	// Other programs are smooth, with sums of normal numbers, roots and logarithms; their
	// results have rounding errors.
	Exact bool
}

// NewUpdate generates a program like those of optimizers, with inputs. All inputs are
// floats. Outputs may have the names of inputs, and are then computed in their place.
// Axes with one element are as likely as others. It panics if its own rules produce an
// invalid program.
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

// updates holds one update program under construction. In an exact program, a value
// whose frac is rounded is still defined to the bit, but must not be added up; in a
// smooth one, mag is the size that elements typically have.
type updates struct {
	UpdateOptions
	*generator
	rows, cols, parts int
}

// step adds one operation, or a few that go together.
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

// add puts a value into the pool, of a size that later operations can go on with.
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

// finishAll names outputs: late values, more than half of them in the place of an input
// of their type.
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
