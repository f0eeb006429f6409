package step_test

import (
	"testing"

	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// compact is descent that keeps x in the state in several types, and adds stored values to the
// direction.
type compact struct{ descent }

func (compact) Storage(sdk.Tensor) map[string]sdk.Storage {
	return map[string]sdk.Storage{"int8": sdk.StoreInt8, "uint8": sdk.StoreUint8,
		"bfloat16": sdk.StoreBFloat16}
}

func state(x program.Value) sdk.State {
	scaled := x.Scale(300).Round()
	return sdk.State{"full": x, "bfloat16": x, "whole": scaled, "int8": scaled, "uint8": scaled}
}

func (compact) Init(_ *program.Builder, x program.Value, _ sdk.Tensor) (sdk.State, error) {
	return state(x), nil
}

func (compact) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	kept := in.State["int8"].Sub(in.State["uint8"]).Scale(1e-3).Add(in.State["bfloat16"])
	return in.Gradient.Add(kept), state(in.X), nil
}

// TestCompact checks that state is stored in the types that the optimizer names, on the device and
// through a checkpoint.
func TestCompact(t *testing.T) {
	want := map[string]shapes.DType{"int8": shapes.Int8, "uint8": shapes.Uint8,
		"bfloat16": shapes.BFloat16, "full": shapes.Float32, "whole": shapes.Float32}
	exact := map[string]string{"int8": "whole", "uint8": "whole", "bfloat16": "full"}
	for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
		cfg := sgdConfig(t)
		plan := planOf(t, cfg, grid{}, compact{})
		plan.Dispatch = dispatch
		k := started(t, cfg, plan)
		steps := func(s *step.State, from, to int) {
			for i := from; i < to; i++ {
				run(t, k.Compiled, s, batches(cfg, uint64(i), 1),
					step.Settings{Step: i + 1, Rate: 0.5, NextRate: 0.5})
			}
		}
		check := func(s *step.State) {
			t.Helper()
			values := testrun.Download(t, k.Compiled, s)
			for _, r := range k.Plan().Rules {
				for name, dtype := range want {
					if got := s.Tensors["state/"+r.Name+"/"+name].Shape().DType; got != dtype {
						t.Errorf("%s: %s of %s is %s", dispatch, name, r.Name, got)
					}
				}
				for name, of := range exact {
					for i, v := range values["state/"+r.Name+"/"+of] {
						if got, want := float64(values["state/"+r.Name+"/"+name][i]), sdk.Storage(name).
							Round(float64(v)); got != want {
							t.Fatalf("%s: %s of %s is %v where %s is %v, want %v", dispatch, name, r.Name, got, of, v,
								want)
						}
					}
				}
			}
		}
		check(k.State)
		steps(k.State, 0, 3)
		check(k.State)
		middle := testrun.Tensors(t, k.Compiled, k.State)
		steps(k.State, 3, 5)
		whole := testrun.Download(t, k.Compiled, k.State)
		s, err := k.Upload(loaded(middle))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		check(s)
		steps(s, 3, 5)
		sameBits(t, "after a checkpoint", whole, testrun.Download(t, k.Compiled, s))
	}
}
