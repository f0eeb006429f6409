package loops

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGate compares gates of every bfloat16 number with float64, within a bound for rounding to 8
// bits and five roundings in float32. It also checks that vectors give the bits of single elements.
func TestGate(t *testing.T) {
	const n = 1<<16 + 7
	r := rand.New(rand.NewPCG(1, 2))
	a, b, d := make([]uint16, n), make([]uint16, n), make([]uint16, n)
	for i := range a {
		a[i], b[i], d[i] = uint16(i), short(float32(r.NormFloat64())), short(float32(r.NormFloat64()))
	}
	wide := func(x uint16) float64 { return float64(math.Float32frombits(uint32(x) << 16)) }
	h, da, db := make([]uint16, n), make([]uint16, n), make([]uint16, n)
	Gates{a, b}.Values(h, InOrder)
	Gates{a, b}.Adjoints(da, db, d, InOrder)
	for i := range a {
		x, y, dy := wide(a[i]), wide(b[i]), wide(d[i])
		if math.Abs(x) > 80 || math.Abs(x) < 1e-30 || math.IsNaN(x) {
			continue // its exponential or a product is not a normal number
		}
		sigma := 1 / (1 + math.Exp(-x))
		for _, c := range []struct {
			what             string
			got, want, apart float64 // apart: magnitude of a summand
		}{
			{"gate", wide(h[i]), x * sigma * y, 0},
			{"da", wide(da[i]), dy * y * sigma * (1 + x*(1-sigma)),
				math.Abs(dy * y * sigma * x * (1 - sigma))},
			{"db", wide(db[i]), dy * x * sigma, 0},
		} {
			// The absolute error of 1−σ is that of σ. Where 1−σ is small, x is large.
			bound := math.Abs(c.want)*(1./256+1e-6) + c.apart*1e-6 + math.Abs(dy*y*sigma*x)*1e-7
			if !(math.Abs(c.got-c.want) <= bound) && math.Abs(c.want) > 1e-37 {
				t.Fatalf("%s of %v, %v, %v is %v, want %v", c.what, x, y, dy, c.got, c.want)
			}
		}
	}
	for _, from := range []int{0, 5} {
		for _, n := range []int{0, 1, 15, 16, 17, 40, 1 << 15} {
			one := func(i int) (h, da, db [1]uint16) {
				Gates{a[i : i+1], b[i : i+1]}.Values(h[:], InOrder)
				Gates{a[i : i+1], b[i : i+1]}.Adjoints(da[:], db[:], d[i:i+1], InOrder)
				return h, da, db
			}
			start := 0x3f00 + from // numbers near 1
			h, da, db := make([]uint16, n), make([]uint16, n), make([]uint16, n)
			Gates{a[start : start+n], b[start : start+n]}.Values(h, InOrder)
			Gates{a[start : start+n], b[start : start+n]}.Adjoints(da, db, d[start:start+n], InOrder)
			for i := range n {
				wantH, wantA, wantB := one(start + i)
				got, want := []uint16{h[i], da[i], db[i]}, []uint16{wantH[0], wantA[0], wantB[0]}
				nan := func(x uint16) bool { return math.IsNaN(wide(x)) }
				if !slices.EqualFunc(got, want, func(x, y uint16) bool { return x == y || nan(x) && nan(y) }) {
					t.Fatalf("%#x, element %d of %d: %#x, want %#x", a[start+i], i, n, got, want)
				}
			}
		}
	}
}
