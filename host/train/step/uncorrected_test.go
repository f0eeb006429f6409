package step_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// holed is a quantizer that rounds to a grid, but gives NaN for the weights whose names end in attn.out.
type holed struct{}

func (holed) Describe() sdk.Description { return sdk.Description{Name: "holed"} }

func (holed) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	v := x.Scale(8).Round().Scale(0.125)
	if strings.HasSuffix(site.Name, "attn.out") {
		v = v.Mul(b.Const(math.NaN()))
	}
	return sdk.Quantized{Value: v}, nil
}

// TestUncorrected: weights whose residual is not finite are named in the result of every
// step with a correction, logged or not, whatever executes the update, and are trained
// as without it.
func TestUncorrected(t *testing.T) {
	var names []string
	for i := range 2 { // of the layers
		names = append(names, fmt.Sprintf("layers.%d.attn.out", i))
	}
	ways := map[string]func(*step.Plan){
		"tiles":  func(*step.Plan) {},
		"graph":  func(p *step.Plan) { p.Update = lowered },
		"single": func(p *step.Plan) { p.Update, p.Dispatch = lowered, step.Single },
	}
	for _, form := range []string{`method.form="decoupled"`, `method.form="coupled"`, `method.variant="official"`} {
		for way, set := range ways {
			t.Run(form+"/"+way, func(t *testing.T) {
				cfg := sgdConfig(t, form, `method.gradient="full"`)
				plan := planOf(t, cfg, holed{}, descent{})
				set(&plan)
				k := started(t, cfg, plan)
				for i, c := range []struct {
					lambda     float64
					statistics bool
					want       []string
				}{{0, true, nil}, {1, false, names}, {1, true, names}} {
					res := run(t, k.Compiled, k.State, batches(cfg, uint64(i), 1), step.Settings{Step: i + 1, Rate: 0.1, NextRate: 0.1, Lambda: c.lambda, Statistics: c.statistics})
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
