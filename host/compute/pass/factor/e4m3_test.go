package factor_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestBlocksE4M3: which scales are numbers of E4M3 and one for the tensor.
func TestBlocksE4M3(t *testing.T) {
	type value = program.Value
	nvfp4 := func(round func(v value) value, scale func(block, tensor value) value) func(v value) (entries, scale value) {
		return func(v value) (value, value) {
			largest := v.Abs().MaxRow()
			tensor := largest.MaxAll().Scale(1.0 / 2688)
			s := scale(round(largest.Scale(1.0/6).Div(tensor)), tensor)
			return microscaling.RoundE2M1(v.Div(s), microscaling.TiesEven), s
		}
	}
	times := func(block, tensor value) value { return block.Mul(tensor) }
	// other rounds as RoundE4M3 does, with other limits.
	other := func(mantissa, least, largest, limit float64) func(v value) value {
		return func(v value) value {
			unit := v.Logb().Shift(-mantissa).Clip(least, largest)
			return v.Ldexp(unit.Neg()).Round().Ldexp(unit).Clip(-limit, limit)
		}
	}
	for name, tt := range map[string]struct {
		make func(v value) (entries, scale value)
		size int
		ok   bool
	}{
		"times":        {nvfp4(microscaling.RoundE4M3, times), 16, true},
		"times, later": {nvfp4(microscaling.RoundE4M3, func(block, tensor value) value { return tensor.Mul(block) }), 16, true},
		"over": {nvfp4(microscaling.RoundE4M3, func(block, tensor value) value {
			return block.Div(tensor.Builder().Const(1).Div(tensor))
		}), 16, true},
		"NaN where it is not finite": {nvfp4(microscaling.RoundE4M3, func(block, tensor value) value {
			return tensor.IsFinite().Select(block.Mul(tensor), tensor.Builder().Const(math.NaN()))
		}), 16, true},
		"0 where it is not finite": {nvfp4(microscaling.RoundE4M3, func(block, tensor value) value {
			return tensor.IsFinite().Select(block.Mul(tensor), tensor.Builder().Const(0))
		}), 16, false},
		"blocks of 32":    {nvfp4(microscaling.RoundE4M3, times), 32, false},
		"smaller limits":  {nvfp4(other(3, -8, 4, 240), times), 16, true},
		"two bits":        {nvfp4(other(2, -9, 5, 448), times), 16, false},
		"finer":           {nvfp4(other(3, -10, 5, 448), times), 16, false},
		"coarser":         {nvfp4(other(3, -9, 6, 448), times), 16, false},
		"larger":          {nvfp4(other(3, -9, 5, 449), times), 16, false},
		"between two":     {nvfp4(other(3, -9, 5, 300), times), 16, false},
		"units too small": {nvfp4(other(3, -9, 2, 448), times), 16, false},
		"half units":      {nvfp4(other(3, -8.5, 5, 448), times), 16, false},
		"from 0.3": {nvfp4(func(v value) value {
			unit := v.Logb().Shift(-3).Clip(-9, 5)
			return v.Ldexp(unit.Neg()).Round().Ldexp(unit).Clip(0.3, 448)
		}, times), 16, false},
		"signs of zeros": {nvfp4(func(v value) value {
			return microscaling.RoundE4M3(v.Div(v.Shift(-1).Clip(0, 1)))
		}, times), 16, false},
		"negative":    {nvfp4(func(v value) value { return microscaling.RoundE4M3(v.Neg()) }, times), 16, false},
		"not rounded": {nvfp4(func(v value) value { return v.Clip(0, 448) }, times), 16, false},
		"one for each block": {nvfp4(microscaling.RoundE4M3, func(block, _ value) value {
			return block.Mul(block.Shift(1))
		}), 16, false},
	} {
		t.Run(name, func(t *testing.T) {
			checkCase(t, blockQuantizer(tt.size, tt.make), tt.ok, tt.size, 1e-6) // two scales are multiplied in another order
		})
	}
}

// TestBlocksBeyondFloat32: where a scale, or one over the number of the tensor, is too large for binary32, the codes are NaN: of
// what is finite they say no other number.
func TestBlocksBeyondFloat32(t *testing.T) {
	type value = program.Value
	for name, tt := range map[string]struct {
		make  func(v value) (entries, scale value)
		power int // of the first block
	}{
		"over": {func(v value) (value, value) {
			tensor := v.Builder().Const(math.Exp2(-130))
			s := microscaling.RoundE4M3(v.Abs().MaxRow().Scale(1.0 / 6).Mul(tensor)).Div(tensor)
			return microscaling.RoundE2M1(v.Div(s), microscaling.TiesEven), s
		}, 108},
		"times": {func(v value) (value, value) {
			tensor := v.Builder().Const(math.Exp2(121))
			s := microscaling.RoundE4M3(v.Abs().MaxRow().Div(tensor).Scale(3)).Mul(tensor)
			return v.Sign().Scale(0.5), s
		}, 111},
	} {
		t.Run(name, func(t *testing.T) {
			f, ok := factor.Blocks(blockQuantizer(factor.BlockE4M3, tt.make), "value")
			if !ok {
				t.Fatal("not factored")
			}
			x := reference.Tensor{Type: f.Inputs[0].Type}
			for i := range blockRows * blockLength {
				x.Floats = append(x.Floats, math.Ldexp(float64(i%16+1)/16, tt.power+4+i/16))
			}
			out, err := reference.Run32(f, map[string]reference.Tensor{"x": x})
			if err != nil {
				t.Fatal(err)
			}
			broken := 0
			for i, got := range unblocked(t, out, factor.BlockE4M3) {
				if want := out["value"].Floats[i]; math.IsNaN(got) {
					broken++
				} else if got != want {
					t.Errorf("value %d of %g is %g, its codes say %g", i, x.Floats[i], want, got)
				}
			}
			if broken == 0 {
				t.Error("no code is NaN")
			}
		})
	}
}
