package step_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/method/cage"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
)

// TestLotion: training is in full precision with a regularized gradient, evaluation is
// quantized, and the Fisher average is part of the state.
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
				p.Rules[i].Lotion = &cage.Lotion{Coeff: coeff, FisherDecay: 0.5, Denominator: 8}
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
		if there != p.Quantized || cmp.Equal(on["param/"+p.Name], plain["param/"+p.Name]) == p.Quantized && p.Quantized {
			t.Errorf("%s: regularized %t, want %t", p.Name, there, p.Quantized)
		}
		for _, f := range fisher {
			if f < 0 {
				t.Fatalf("%s: the average of squares is %v", p.Name, f)
			}
		}
	}
	losses := func(c *step.Compiled, s *step.State) []float32 {
		e, err := c.Evaluator(s)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		l, err := e.Losses(b[0])
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if cmp.Equal(losses(plainK, plainS), losses(zeroK, zeroS)) {
		t.Error("the evaluation is not quantized")
	}
}
