package microscaling_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/testing/fpmodel"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// ratios returns a fine grid that contains all levels and ties, their neighbours in binary32 and
// binary64, and extreme numbers, each with both signs.
func ratios() []float64 {
	out := []float64{math.Copysign(0, -1), 0, 0x1p-149, -0x1p-149, 1e30, -1e30, math.Inf(1),
		math.Inf(-1)}
	for i := range 8*16 + 1 {
		v := float64(i) / 16
		for _, m := range []float64{
			v, float64(math.Nextafter32(float32(v), 9)), float64(math.Nextafter32(float32(v), 0)),
			math.Nextafter(v, 9), math.Nextafter(v, 0),
		} {
			out = append(out, m, -m)
		}
	}
	return out
}

func TestE2M1(t *testing.T) {
	all := ratios()
	x := reference.Floats(all, len(all))
	for _, ties := range []microscaling.Ties{microscaling.TiesEven, microscaling.TiesAway,
		microscaling.TiesDown, ""} {
		rounded := apply(t, x,
			func(v program.Value) program.Value { return microscaling.RoundE2M1(v, ties) })
		codes := apply(t, x, func(v program.Value) program.Value {
			return microscaling.EncodeE2M1(microscaling.RoundE2M1(v, ties), v)
		})
		for p := range precisions {
			for i, r := range all {
				if p == 1 {
					r = float64(float32(r))
				}
				code := fpmodel.Nearest(math.Abs(r), fpmodel.Magnitudes[:], ties)
				if want := math.Copysign(fpmodel.Magnitudes[code], r); rounded[p].Floats[i] != want {
					t.Errorf("%s, ties %q: %v becomes %v, want %v", precisions[p], ties, r, rounded[p].Floats[i],
						want)
				}
				if math.Signbit(r) {
					code += 8
				}
				if got := codes[p].Ints[i]; got != int64(code) {
					t.Errorf("%s, ties %q: %v has code %d, want %d", precisions[p], ties, r, got, code)
				}
			}
		}
	}
}

// TestDecodeE2M1 checks the decoding of all codes, as integers and as floats.
func TestDecodeE2M1(t *testing.T) {
	ints, floats := make([]int32, 16), make([]float64, 16)
	for i := range ints {
		ints[i], floats[i] = int32(i), float64(i)
	}
	for _, x := range []reference.Tensor{reference.Ints(ints, 16), reference.Floats(floats, 16)} {
		for p, got := range apply(t, x, microscaling.DecodeE2M1) {
			for i, v := range got.Floats {
				want := fpmodel.Magnitudes[i%8]
				if i >= 8 {
					want = math.Copysign(want, -1)
				}
				if v != want || math.Signbit(v) != math.Signbit(want) {
					t.Errorf("%s: code %d of type %s is %v, want %v", precisions[p], i, x.Type.DType, v, want)
				}
			}
		}
	}
}
