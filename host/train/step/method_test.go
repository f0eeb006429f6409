package step_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// TestLotion checks that training uses full precision and a regularized gradient, that evaluation
// is quantized, and that the Fisher average is part of the state.
func TestLotion(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.0", "train.clip=0.0")
	b := batches(cfg, 1, 1)
	train := func(q sdk.Quantizer, change func(*step.Plan)) (*step.Compiled, *step.State) {
		plan := planOf(t, cfg, q, descent{})
		plan.Activations = nil
		if change != nil {
			change(&plan)
		}
		c := testrun.Compile(t, plan)
		s := newState(t, c)
		for i := range 3 {
			run(t, c, s, b, step.Settings{Step: i + 1, Rate: 0.1, Statistics: i == 1 && q != nil})
		}
		return c, s
	}
	lotionWith := func(coeff float64) func(*step.Plan) {
		return func(p *step.Plan) {
			p.FullPrecision = true
			for i := range p.Rules {
				p.Rules[i].Method = cage.LOTION{Coeff: coeff, FisherDecay: 0.5, Bits: 4, Denom: "power"}
			}
		}
	}
	plainK, plainS := train(nil, nil)
	plain := testrun.Download(t, plainK, plainS)
	zeroK, zeroS := train(grid{}, lotionWith(0))
	zero := testrun.Download(t, zeroK, zeroS)
	for name, values := range plain {
		if diff := cmp.Diff(values, zero[name]); diff != "" {
			t.Errorf("%s: without strength it differs from training in full precision", name)
		}
	}
	c, s := train(grid{}, lotionWith(1e4))
	on := testrun.Download(t, c, s)
	for _, p := range c.Plan().Model.Params() {
		fisher, there := on["state/"+p.Name+"/lotion.fisher"]
		if there != p.Quantized ||
			cmp.Equal(on["param/"+p.Name], plain["param/"+p.Name]) == p.Quantized && p.Quantized {
			t.Errorf("%s: regularized %t, want %t", p.Name, there, p.Quantized)
		}
		for _, f := range fisher {
			if f < 0 {
				t.Fatalf("%s: the average of squares is %v", p.Name, f)
			}
		}
	}
	if cmp.Equal(evaluated(t, plainK, plainS, b[0]), evaluated(t, zeroK, zeroS, b[0])) {
		t.Error("the evaluation is not quantized")
	}
}

// holed is a quantizer that rounds to a grid, but gives NaN for the weights whose names end in
// attn.out.
type holed struct{}

func (holed) Describe() sdk.Description { return sdk.Description{Name: "holed"} }

func (holed) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	v := x.Scale(8).Round().Scale(0.125)
	if strings.HasSuffix(site.Name, "attn.out") {
		v = v.Mul(b.Const(math.NaN()))
	}
	return sdk.Quantized{Value: v}, nil
}

// TestUncorrected checks that the result of every step with a correction names the weights whose
// residual is not finite, with and without statistics, however the update is executed, and that the
// step is not skipped.
func TestUncorrected(t *testing.T) {
	var names []string
	for i := range 2 { // layers
		names = append(names, fmt.Sprintf("layers.%d.attn.out", i))
	}
	ways := map[string]func(step.Plan) compiledStep{
		"plan":  func(p step.Plan) compiledStep { return started(t, sgdConfig(t), p) },
		"graph": func(p step.Plan) compiledStep { return inGraphs(t, sgdConfig(t), p) },
		"single": func(p step.Plan) compiledStep {
			p.Dispatch = step.Single
			return inGraphs(t, sgdConfig(t), p)
		},
	}
	for _, form := range []string{`method.form="decoupled"`, `method.form="coupled"`,
		`method.variant="official"`} {
		for way, compiled := range ways {
			t.Run(form+"/"+way, func(t *testing.T) {
				cfg := sgdConfig(t, form, `method.gradient="full"`)
				k := compiled(planOf(t, cfg, holed{}, descent{}))
				for i, c := range []struct {
					lambda     float64
					statistics bool
					want       []string
				}{{0, true, nil}, {1, false, names}, {1, true, names}} {
					res := run(t, k.Compiled, k.State, batches(cfg, uint64(i), 1),
						step.Settings{Step: i + 1, Rate: 0.1, NextRate: 0.1, Lambda: c.lambda,
							Statistics: c.statistics})
					if res.Skipped {
						t.Fatalf("the step was skipped: %+v", res)
					}
					if diff := cmp.Diff(c.want, res.Uncorrected); diff != "" {
						t.Errorf("step %d, λ %v: uncorrected (-want +got):\n%s", i+1, c.lambda, diff)
					}
					if c.statistics != (len(res.ErrorNorm2) > 0) {
						t.Errorf("step %d: %d statistics", i+1, len(res.ErrorNorm2))
					}
				}
			})
		}
	}
}
