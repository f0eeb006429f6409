package export

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestNVFP4ScaleBetweenTwo checks that if scales cannot be exact, one halfway between two E4M3
// numbers is rounded like a cast of PyTorch to float8_e4m3fn. Otherwise an inexact export would
// differ from what compressed-tensors writes.
func TestNVFP4ScaleBetweenTwo(t *testing.T) {
	for scale, want := range map[float32]float32{1.0625: 1, 1.1875: 1.25, 0x1p-10: 0,
		3 * 0x1p-10: 0x1p-8, 1.0625001: 1.125, 1.0624999: 1, 447: 448, 448: 448} {
		// 17/16 of an E4M3 number is none, with any global scale
		global, exact, err := findNVFP4([]float32{448, 1.0625, scale})
		if err != nil || exact || global != 1 {
			t.Fatalf("%v: %v, %t, %v: want an inexact global scale of 1", scale, global, exact, err)
		}
		if got := e4m3(codeNVFP4(scale, global)); got != want {
			t.Errorf("the scale %v becomes %v, want %v", scale, got, want)
		}
	}
}

// TestFileTypes checks that general.file_type has a value for each type, and no value twice.
func TestFileTypes(t *testing.T) {
	seen := map[uint32]gguf.Type{}
	for name, typ := range ggufTypes {
		value, ok := ggufFileTypes[typ]
		if !ok {
			t.Errorf("%s has no value", name)
		}
		if other, ok := seen[value]; ok {
			t.Errorf("%s and %s both have the value %d", typ, other, value)
		}
		seen[value] = typ
	}
}

// TestManyNVFP4Scales checks that trials of global scales need no memory, and so do not round all
// scales: those of a large weight, which cannot succeed, would take minutes.
func TestManyNVFP4Scales(t *testing.T) {
	scales := make([]float32, 200)
	for i := range scales {
		scales[i] = 1 + float32(i)/256
	}
	n := testing.AllocsPerRun(1, func() {
		if _, exact, err := findNVFP4(scales); exact || err != nil {
			t.Errorf("exact is %t, %v: want rounded scales", exact, err)
		}
	})
	if n > 200 { // there are 631 trials
		t.Errorf("%v allocations, want a few", n)
	}
}

// e4m3 returns the E4M3 number of a code, by its definition.
func e4m3(code byte) float32 {
	exponent, mantissa := int(code>>3), float32(code&7)
	v := (8 + mantissa) / 8
	if exponent == 0 {
		exponent, v = 1, mantissa/8
	}
	for ; exponent < 7; exponent++ {
		v /= 2
	}
	for ; exponent > 7; exponent-- {
		v *= 2
	}
	return v
}

// PlanOnly checks and plans an export without writing it.
func PlanOnly(format string, m *Model) error {
	if err := m.Tokenizer.check(m.Settings.Vocab); err != nil {
		return err
	}
	_, err := formats[format](m, Options{})
	return err
}

// TestAffineIsExact checks that exact is only set if all codes are exact, and that it is set for
// all half-precision numbers as scales.
func TestAffineIsExact(t *testing.T) {
	grids := []spec.Grid{{Format: spec.FormatInteger, Min: -128, Max: 127, Step: 1},
		{Format: spec.FormatInteger, Min: -7, Max: 7, Step: 1},
		{Format: spec.FormatInteger, Min: -15, Max: 15, Step: 2},
		{Format: spec.FormatInteger, Min: -1, Max: 1, Step: 2}}
	try := func(numbers spec.Grid, s float32) (claimed, exact bool) {
		g := &Grid{Rows: 1, Columns: 32, Group: 32, Numbers: numbers, Codes: make([]int32, 32),
			Scales: []float32{s}}
		for i := range g.Codes {
			g.Codes[i] = int32(numbers.Min)
		}
		a, claimed, err := affineOf(g, 8)
		if err != nil {
			t.Fatal(err)
		}
		exact = true
		for _, c := range numbers.Codes() {
			code := (int(c) - numbers.Min) / numbers.Step
			product := float32(a.Scales[0] * float32(code))
			exact = exact && float64(product) == float64(a.Scales[0])*float64(code) &&
				product+a.Minima[0] == float32(c)*s
		}
		return claimed, exact
	}
	for bits := range uint16(0x7c00) {
		s := halffloat.FromHalf(bits)
		for _, numbers := range grids {
			if claimed, exact := try(numbers, s); !claimed || !exact {
				t.Fatalf("%v on %v: %v, found %v", s, numbers, claimed, exact)
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		s := math.Float32frombits(rng.Uint32N(0x7e000000) &^ (1<<rng.IntN(24) - 1))
		for _, numbers := range grids {
			if claimed, exact := try(numbers, s); claimed && !exact {
				t.Fatalf("%b on %v: exact is %v, found %v", s, numbers, claimed, exact)
			} else if exact && !claimed && float64(s)*255 < math.MaxFloat32 &&
				numbers.Max-numbers.Min == 255 {
				t.Fatalf("%b on %v: exact is %v, found %v", s, numbers, claimed, exact)
			}
		}
	}
}
