package step_test

import (
	"math"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// errors64 returns e = x − Q(x) and x of the quantized parameters in float64. The reference
// implementation runs the program of each parameter's quantizer.
func errors64(t *testing.T, c *step.Compiled, s *step.State) (e, x [][]float64) {
	t.Helper()
	values := testrun.Download(t, c, s)
	for _, rule := range c.Plan().Rules {
		if rule.Quantizer == nil {
			continue
		}
		in := wide(values["param/"+rule.Name])
		out, err := reference.Run(rule.Quantizer.Program,
			map[string]reference.Tensor{spec.InputX: reference.Floats(in, rule.Shape...)})
		if err != nil {
			t.Fatal(err)
		}
		diff := make([]float64, len(in))
		for i, q := range out[spec.OutputValue].Floats {
			diff[i] = in[i] - q
		}
		e, x = append(e, diff), append(x, in)
	}
	return e, x
}

// TestStatistics compares Σe² and Σx² with the reference implementation. In float32 the sums of up
// to 3072 squares have relative errors of 1e-6; a value at the boundary between two codes may get
// the other code, which changes e² little. The tolerance is 1e-5.
func TestStatistics(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32")
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s := newState(t, c)
	for i := range 3 {
		e, x := errors64(t, c, s)
		set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 3e-3, Lambda: float64(i),
			Statistics: true}
		res := run(t, c, s, batches(cfg, uint64(i), 1), set)
		if len(res.ErrorNorm2) != len(e) || len(res.ValueNorm2) != len(e) || len(e) != 10 {
			t.Fatalf("statistics of %d and %d parameters, want %d", len(res.ErrorNorm2), len(res.ValueNorm2),
				len(e))
		}
		for j := range e {
			near(t, "Σe²", res.ErrorNorm2[j], norm2(e[j]), 1e-5)
			near(t, "Σx²", res.ValueNorm2[j], norm2(x[j]), 1e-5)
		}
	}
	res := run(t, c, s, batches(cfg, 9, 1), step.Settings{Step: 4, Rate: 1e-3})
	if res.ErrorNorm2 != nil || res.ValueNorm2 != nil {
		t.Error("statistics that nobody asked for")
	}
}

// TestParetoIsOverhead checks that the time of the measures counts as overhead of the step.
func TestParetoIsOverhead(t *testing.T) {
	cfg := sgdConfig(t)
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	if err := c.Prepare(true); err != nil {
		t.Fatal(err)
	}
	s := newState(t, c)
	least := map[bool]time.Duration{false: time.Hour, true: time.Hour}
	for i := range 8 {
		measured := i%2 == 1
		res := run(t, c, s, batches(cfg, 5, cfg.Train.Accumulate),
			step.Settings{Step: i + 1, Rate: 1e-3, NextRate: 1e-3, Pareto: measured, ParetoSTE: measured})
		least[measured] = min(least[measured], res.Overhead)
	}
	if least[true] <= least[false] {
		t.Errorf("the measures took %v, without them it is %v", least[true], least[false])
	}
}

// TestParetoMeasures compares both measures with sums in float64 over gradients from separate
// steps: ∇f(Q(x)) from a quantized step, ∇f(x) from an unquantized one. These gradients are
// differences of float32 parameters, with relative errors of 1e-6; the tolerance is 1e-5.
func TestParetoMeasures(t *testing.T) {
	for _, accumulate := range []string{"train.accumulate=1", "train.accumulate=3"} {
		t.Run(accumulate, func(t *testing.T) {
			cfg := sgdConfig(t, accumulate)
			b := batches(cfg, 5, cfg.Train.Accumulate)
			c := testrun.Compile(t, testrun.Plan(t, cfg))
			plain := testrun.Compile(t,
				testrun.Plan(t, testrun.Again(t, cfg, `quantizer.plugin="none"`,
					"quantizer.weights.plugin=\"none\"", "quantizer.activations.plugin=\"none\"",
					`method.form="off"`)))
			s := newState(t, c)
			e, _ := errors64(t, c, s)
			const lambda = 1.7
			res := run(t, c, s, b, step.Settings{Step: 1, Rate: 1e-3, NextRate: 1e-3, ParetoSTE: true,
				Pareto: true, ParetoLambda: lambda})
			near(t, "‖∇f(Q(x)) + λe‖", res.ParetoSTE, paretoNorm(c, gradients(t, c, b), e, lambda), 1e-5)
			near(t, "‖∇f(x) + λe‖", res.Pareto, paretoNorm(c, gradients(t, plain, b), e, lambda), 1e-5)
			if res.Pareto == res.ParetoSTE {
				t.Error("both measures are equal")
			}
		})
	}
}

// paretoNorm returns ‖g + λe‖ over the quantized parameters.
func paretoNorm(c *step.Compiled, g, e [][]float64, lambda float64) float64 {
	total, at := 0.0, 0
	for i, rule := range c.Plan().Rules {
		if rule.Quantizer == nil {
			continue
		}
		for j, v := range g[i] {
			d := v + lambda*e[at][j]
			total += d * d
		}
		at++
	}
	return math.Sqrt(total)
}

// TestMeasuresChangeNothing checks that a step has the same bits with all measures and without.
func TestMeasuresChangeNothing(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", "train.accumulate=2")
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	plain, measured := newState(t, c), newState(t, c)
	for i := range 4 {
		set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 2e-3, Lambda: float64(i % 2)}
		a := run(t, c, plain, batches(cfg, uint64(10*i), 2), set)
		set.Statistics, set.ParetoSTE, set.Pareto, set.ParetoLambda = true, true, true, 2
		b := run(t, c, measured, batches(cfg, uint64(10*i), 2), set)
		if a.Loss != b.Loss || a.GradNorm != b.GradNorm {
			t.Errorf("step %d: loss %v and %v, norm %v and %v", i+1, a.Loss, b.Loss, a.GradNorm, b.GradNorm)
		}
	}
	sameBits(t, "with measures and without", testrun.Download(t, c, plain),
		testrun.Download(t, c, measured))
}

// TestUnquantizedHasNoMeasures checks that nothing is measured without quantized parameters.
func TestUnquantizedHasNoMeasures(t *testing.T) {
	cfg := sgdConfig(t)
	c := testrun.Compile(t, planOf(t, cfg, nil, descent{}))
	res := run(t, c, newState(t, c), batches(cfg, 1, 1), step.Settings{
		Step: 1, Rate: 1, Lambda: 1, Statistics: true, ParetoSTE: true, Pareto: true, ParetoLambda: 1,
	})
	if res.ErrorNorm2 != nil || res.Pareto != 0 || res.ParetoSTE != 0 {
		t.Errorf("got %+v", res)
	}
}
