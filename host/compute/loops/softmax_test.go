package loops

import (
	"math"
	"testing"
)

// TestSoftmaxOfKnown compares the plain loops with known results.
func TestSoftmaxOfKnown(t *testing.T) {
	a := []float32{1, -2, 3, 0.5, -1, 3} // two rows
	most := []float32{-1, -1.5, float32(math.NaN())}
	MaxColumns(most, a)
	if most[0] != 1 || most[1] != -1 || most[2] == most[2] {
		t.Errorf("maxima are %v", most)
	}
	down, sums := []float32{2, 0, 6}, []float32{10, 0, 0}
	plainExpColumns(a, 2, down, sums, Exact, 0)
	for j, want := range []float64{10 + 1 + math.Exp(-1), math.Exp(-4) + math.Exp(-2), 2} {
		if math.Abs(float64(sums[j])-want) > 1e-6 {
			t.Errorf("sum %d is %v, want %v", j, sums[j], want)
		}
	}
	b, d := []float32{0, -1, -2, -0.5}, []float32{3, 4, 5, 6}
	plainExpRows(b, d, 0.5, []float32{0, 1}, []float32{2, 7}, Rounded)
	for i, x := range []float64{0, -0.5, -2, -1.25} {
		weight := math.Exp(x)
		adjoint := weight * (float64(3+i) - []float64{2, 7}[i/2]) * 0.5
		if math.Abs(float64(b[i])-weight) > weight/256 ||
			math.Abs(float64(d[i])-adjoint) > math.Abs(adjoint)/256 {
			t.Errorf("weight %d is %v, its adjoint %v; want %v and %v", i, b[i], d[i], weight, adjoint)
		}
		if short := math.Float32bits(b[i]) | math.Float32bits(d[i]); short&0xffff != 0 {
			t.Errorf("weight %d or its adjoint is not rounded", i)
		}
	}

	// Three rows of two columns: words hold pairs of rows, the last one with zeros.
	inf, nan := float32(math.Inf(-1)), float32(math.NaN())
	a, d = []float32{0, inf, 0, 0, inf, 0}, []float32{3, nan, 5, 6, 7, 8}
	plainExpRows(a, d, 0.5, []float32{0, 0, nan}, []float32{1, 2, nan}, Paired)
	for _, c := range []struct {
		name string
		got  []float32
		want []uint32
	}{
		{"weights", a[:4], []uint32{0x3f80_3f80, 0x3f80_0000, 0x0000_0000, 0x0000_7fc0}},
		{"adjoints", d[:4], []uint32{0x3fc0_3f80, 0x4000_0000, 0x0000_0000, 0x0000_7fc0}},
	} {
		for i, x := range c.got {
			if bits := math.Float32bits(x) &^ 0x8000_8000; bits != c.want[i] { // NaN may have any sign
				t.Errorf("%s: word %d is %#08x, want %#08x", c.name, i, bits, c.want[i])
			}
		}
	}
	a, sums = []float32{0, 0, -200, 0, 0, 0}, make([]float32, 2)
	plainExpColumns(a, 1, []float32{0, 0}, sums, Paired, 0)
	for i, want := range []uint32{0x0000_3f80, 0x3f80_3f80, 0x0000_3f80, 0x0000_3f80} {
		if bits := math.Float32bits(a[i]); bits != want {
			t.Errorf("weights in columns: word %d is %#08x, want %#08x", i, bits, want)
		}
	}
	if sums[0] != 2 || sums[1] != 3 {
		t.Errorf("sums are %v, want 2 and 3", sums)
	}
}
