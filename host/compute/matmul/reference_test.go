package matmul

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/halffloat"
)

// A shape describes a product: the sizes of its axes and their layout in memory.
type shape struct {
	batch, m, n, k []int
	// order of the axes batch…, cross…, contracted… in memory, the slowest first; nil is that order
	left, right []int
	gap         int // elements between rows
}

func square(m, n, k int) shape { return shape{m: []int{m}, n: []int{n}, k: []int{k}} }

func (s shape) String() string {
	join := func(x []int) string {
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(x), " ", "x"), "[]")
	}
	return fmt.Sprintf("%s:%s*%s*%s:%v%v+%d", join(s.batch), join(s.m), join(s.n), join(s.k), s.left,
		s.right, s.gap)
}

func product(sizes []int) int {
	p := 1
	for _, x := range sizes {
		p *= x
	}
	return p
}

// layouts returns the layouts of both operands.
func (s shape) layouts() (left, right Layout) {
	place := func(cross, order []int) Layout {
		sizes := append(append(append([]int{}, s.batch...), cross...), s.k...)
		axes := make([]Axis, len(sizes))
		stride := 1
		for i := len(sizes) - 1; i >= 0; i-- {
			at := i
			if order != nil {
				at = order[i]
			}
			axes[at] = Axis{sizes[at], stride}
			stride *= sizes[at]
			if i == len(sizes)-1 {
				stride += s.gap
			}
		}
		b, c := len(s.batch), len(s.batch)+len(cross)
		return Layout{axes[:b], axes[b:c], axes[c:]}
	}
	return place(s.m, s.left), place(s.n, s.right)
}

// reaches returns the number of elements of an operand in memory.
func reaches(t testing.TB, l Layout) int {
	v, err := newView("", l)
	if err != nil {
		t.Fatal(err)
	}
	return v.extent
}

// offsets returns the offsets of all elements of some axes, by definition.
func offsets(axes []Axis) []int {
	at := []int{0}
	for _, a := range axes {
		var next []int
		for _, o := range at {
			for i := range a.Size {
				next = append(next, o+i*a.Stride)
			}
		}
		at = next
	}
	return at
}

// values returns the elements as the numbers that are multiplied, after rounding.
func values(t *Tier, a Arithmetic, e Elements) []float64 {
	all := make([]float64, max(len(e.Float32), len(e.BFloat16), len(e.Int8)))
	for i, x := range e.Float32 {
		if a == BFloat16 {
			x = math.Float32frombits(uint32(halffloat.ToBFloat16(x)) << 16)
		}
		all[i] = float64(x)
	}
	for i, x := range e.BFloat16 {
		all[i] = float64(math.Float32frombits(uint32(x) << 16))
	}
	for i, x := range e.Int8 {
		all[i] = float64(x)
	}
	for i, x := range all {
		if flushes(t, a) && math.Abs(x) < 0x1p-126 {
			all[i] = 0
		}
	}
	return all
}

// An exact is an element of a product: its value, and the sum of its summands' magnitudes.
type exact struct{ sum, magnitude float64 }

// flushes reports whether products of a tier treat subnormal operands as zero, so that infinity
// times one of them is NaN.
func flushes(t *Tier, a Arithmetic) bool { return t.HasBFloat16() && a == BFloat16 }

func reference(t *Tier, a Arithmetic, l, r Layout, left, right Elements) []exact {
	var out []exact
	lb, rb, lm, rn, lk, rk := offsets(l.Batch), offsets(r.Batch), offsets(l.Cross), offsets(r.Cross),
		offsets(l.Contracted), offsets(r.Contracted)
	lv, rv := values(t, a, left), values(t, a, right)
	for b := range lb {
		for _, i := range lm {
			for _, j := range rn {
				var e exact
				for k := range lk {
					p := lv[lb[b]+i+lk[k]] * rv[rb[b]+j+rk[k]]
					e.sum += p
					e.magnitude += math.Abs(p)
				}
				out = append(out, e)
			}
		}
	}
	return out
}

// elements returns an operand of an element type, at an edge of its memory.
func elements(t testing.TB, kind string, n int, front bool, value func() float64) Elements {
	switch kind {
	case "float32":
		x := guarded[float32](t, n, front)
		for i := range x {
			x[i] = float32(value())
		}
		return Elements{Float32: x}
	case "bfloat16":
		x := guarded[uint16](t, n, front)
		for i := range x {
			x[i] = uint16(math.Float32bits(float32(value())) >> 16)
		}
		return Elements{BFloat16: x}
	}
	x := guarded[int8](t, n, front)
	for i := range x {
		x[i] = int8(value())
	}
	return Elements{Int8: x}
}

func normal(r *rand.Rand) func() float64 { return r.NormFloat64 }

// codes draws integers from −limit to limit.
func codes(r *rand.Rand, limit int) func() float64 {
	return func() float64 { return float64(r.IntN(2*limit+1) - limit) }
}

// wild draws numbers of all kinds.
func wild(r *rand.Rand) func() float64 {
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 0x1p-133,
		-0x1p-127, 0x1.8p-126, 0x1p50, 0x1p-149}
	return func() float64 {
		if r.IntN(12) == 0 {
			return special[r.IntN(len(special))]
		}
		return r.NormFloat64() * math.Ldexp(1, r.IntN(40)-20)
	}
}

// tiny draws numbers whose products are near the smallest of float32.
func tiny(r *rand.Rand) func() float64 {
	return func() float64 { return r.NormFloat64() * math.Ldexp(1, r.IntN(20)-75) }
}

// roundoff is the largest relative error of a float32 operation.
const roundoff = 0x1p-24

// bound returns the largest error of a computed sum of k products. A summand is part of at most k
// additions within blocks and of one for each block. The error of an addition is at most roundoff
// times the sum of magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
// (3.5)), plus half of the smallest number or, if subnormal sums become zero, the smallest normal
// number.
func (e exact) bound(tier *Tier, a Arithmetic, k int) float64 {
	n := float64(k + k/blocksForVectors.block + 2)
	b := n * roundoff / (1 - n*roundoff) * e.magnitude
	if flushes(tier, a) {
		return b + n*0x1p-126
	}
	return b + n*0x1p-150
}

// near reports whether an element is within bound of want; if not, the test fails.
func near(t testing.TB, what string, i int, got float32, want, bound float64) bool {
	t.Helper()
	g := float64(got)
	switch {
	case math.IsNaN(want):
		if math.IsNaN(g) {
			return true
		}
	case math.IsInf(want, 0):
		if g == want {
			return true
		}
	case math.Abs(g-want) <= bound:
		return true
	case math.IsInf(g, 0) && math.Signbit(g) == math.Signbit(want) &&
		math.Abs(want)+bound > math.MaxFloat32:
		return true
	}
	t.Errorf("%s: element %d is %v, want %v ± %v", what, i, got, want, bound)
	return false
}
