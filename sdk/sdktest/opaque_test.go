package sdktest_test

import (
	"math"
	"sync"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// opaqueAverage is m ← β·m + (1−β)·g, u = m / (1 − βᵗ) as an opaque optimizer; mistake selects a
// mistake.
type opaqueAverage struct {
	mistake string
	kept    *sync.Map // forbidden memory outside the state
}

func (opaqueAverage) Describe() sdk.Description {
	return sdk.Description{Name: "average", Doc: "An average.",
		Parameters: []sdk.Parameter{sdk.Float("beta", 0.9, 0, 0.999, "decay")}}
}

func (o opaqueAverage) State(t sdk.Tensor) ([]spec.Tensor, error) {
	list := []spec.Tensor{{Name: "m", Shape: t.Shape}}
	if o.mistake == "useless state" {
		list = append(list, spec.Tensor{Name: "useless"})
	}
	return list, nil
}

func (o opaqueAverage) Step(in sdk.OpaqueStep, t sdk.Tensor) error {
	beta := t.Float("beta")
	correction := 1 - math.Pow(beta, float64(in.Step))
	state := in.State["m"]
	switch o.mistake {
	case "correction":
		correction = 1 - math.Pow(beta, float64(in.Step+1))
	case "kept":
		if old, ok := o.kept.Load(t.Name); ok && len(old.([]float32)) == len(state) && in.Step > 1 {
			state = old.([]float32)
		}
	}
	next := make([]float32, len(state))
	for i, g := range in.Gradient {
		next[i] = float32(beta*float64(state[i]) + (1-beta)*float64(g))
		if o.mistake == "sparse" && math.Abs(float64(g)) < 0.1 {
			continue
		}
		in.Next["m"][i] = next[i]
		u := float32(float64(next[i]) / correction)
		switch o.mistake {
		case "adds":
			in.Direction[i] += u
		case "decay":
			in.Direction[i] = u + 0.1*in.X[i]
		case "leftovers":
			if in.Direction[i] == 7 {
				u = 7
			}
			in.Direction[i] = u
		default:
			in.Direction[i] = u
		}
	}
	switch o.mistake {
	case "gradient":
		in.Gradient[0] *= 2
	case "in place":
		copy(in.State["m"], next)
	case "kept":
		o.kept.Store(t.Name, next)
	case "useless state":
		in.Next["useless"][0] = in.State["useless"][0] + 1
	case "uphill":
		for i, u := range in.Direction {
			in.Direction[i] = -u
		}
	}
	return nil
}

// TestOpaqueMistakes checks that each mistake fails its check, and that no check fails without one.
func TestOpaqueMistakes(t *testing.T) {
	for mistake, check := range map[string]string{
		"": "", "adds": "finite", "sparse": "finite", "decay": "decay", "leftovers": "retry",
		"gradient": "retry", "in place": "retry", "kept": "retry",
		"correction": "correction", "useless state": "state", "uphill": "parabola",
	} {
		t.Run(mistake, func(t *testing.T) {
			o := opaqueAverage{mistake, &sync.Map{}}
			report := sdktest.CheckOptimizer(sdktest.NewOptimizer(sdk.Opaque(o)))
			failed := map[string]sdktest.Failure{}
			for _, c := range report.Checks {
				if c.Status == sdktest.Fail {
					failed[c.Name] = c.Failures[0]
				}
			}
			if _, found := failed[check]; found != (mistake != "") || mistake == "" && len(failed) > 0 {
				t.Errorf("failed: %v; want %q", failed, check)
			}
		})
	}
}
