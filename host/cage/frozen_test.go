package cage

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// heedless is an optimizer whose rate is not the schedule's.
type heedless struct{ sgd }

func (heedless) Rate(b *program.Builder, _ sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	return b.Const(1), nil
}

// infinite is an optimizer whose direction is not finite, and that counts its updates.
type infinite struct{ sgd }

func (infinite) Init(b *program.Builder, _ program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"updates": b.Const(0)}, nil
}

func (infinite) Update(
	b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient.Div(b.Const(0)), sdk.State{"updates": in.State["updates"].Shift(1)}, nil
}

// TestFrozen checks that a tensor with the rate factor 0 keeps its bits and its state with any
// optimizer and method: no update, no decay, no correction, no reset.
func TestFrozen(t *testing.T) {
	for name, o := range map[string]sdk.Optimizer{
		"sgd": sgd{}, "a rate of its own": heedless{}, "not finite": infinite{},
	} {
		for what, m := range map[string]struct {
			Method
			Mode
		}{
			"none":      {None{}, Idle},
			"decoupled": {CAGE{Form: Decoupled, Variant: Paper}, Mode(Decoupled)},
			"official":  {CAGE{Form: Decoupled, Variant: Official}, Mode(Decoupled)},
			"coupled":   {CAGE{Form: Coupled, Variant: Paper}, Mode(Coupled)},
			"lotion":    {DefaultLOTION, DefaultLOTION.Modes()[0]},
			"oscireset": {OsciReset{Every: 3, Threshold: 1}, resetting},
		} {
			for _, last := range []bool{false, true} {
				rule := testRule(t, o, "fixed grid 0.25", 2, 3)
				q := *rule.Quantizer
				rule.Method, rule.Mode = m.Method, m.Mode
				rule.Decay, rule.DecayLast, rule.Clip = 0.1, last, true
				run := func(factor float64) (x, state []float64) {
					rule.RateFactor = factor
					p, err := rule.Program()
					if err != nil {
						t.Fatal(err)
					}
					in := map[string]reference.Tensor{spec.InputX: reference.Floats(sampleX, 2, 3)}
					for _, s := range rule.State() {
						in[spec.StatePrefix+s.Name] = reference.Floats(make([]float64, size(s.Shape)), s.Shape...)
					}
					out := runReference(t, p, stepInputs(t, rule, in, q, runReference, sampleG, testScalars))
					for _, s := range rule.computed() {
						state = append(state, out[spec.StatePrefix+s.Name].Floats...)
					}
					return out[spec.InputX].Floats, state
				}
				x, state := run(0)
				for i := range x {
					if math.Float64bits(x[i]) != math.Float64bits(sampleX[i]) {
						t.Errorf("%s, %s: element %d has become %v", name, what, i, x[i])
					}
				}
				for _, v := range state {
					if v != 0 {
						t.Errorf("%s, %s: the state has become %v", name, what, state)
						break
					}
				}
				if x, _ := run(1); x[0] == sampleX[0] {
					t.Errorf("%s, %s: with a rate of 1 nothing changes", name, what)
				}
			}
		}
	}
}
