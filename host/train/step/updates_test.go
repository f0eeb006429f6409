package step_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// compiledStep is a compiled step with a state.
type compiledStep struct {
	*step.Compiled
	*step.State
}

// started compiles a plan of a configuration and creates a state.
func started(t testing.TB, cfg *config.Config, plan step.Plan) compiledStep {
	t.Helper()
	c := testrun.Compile(t, plan)
	state := newState(t, c, batches(cfg, 1, 1)[0]...)
	return compiledStep{c, state}
}

// inGraphs compiles a plan with graphs and creates a state.
func inGraphs(t testing.TB, cfg *config.Config, plan step.Plan) compiledStep {
	t.Helper()
	d := testdevice.Open(t, engine.Options{Kernels: device.GraphKernels})
	c := compileOn(t, d, plan)
	return compiledStep{c, newState(t, c, batches(cfg, 1, 1)[0]...)}
}

// pair compiles a configuration with plans and with graphs, with the same state. Quantizers rotate
// back, not updates.
func pair(t testing.TB, cfg *config.Config) (plans, graphs compiledStep) {
	t.Helper()
	compiled := func(compile func(testing.TB, *config.Config, step.Plan) compiledStep) compiledStep {
		plan := testrun.Plan(t, cfg)
		plan.FullRotations = true
		return compile(t, cfg, plan)
	}
	plans, graphs = compiled(started), compiled(inGraphs)
	state, err := graphs.Upload(loaded(testrun.Tensors(t, plans.Compiled, plans.State)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(state.Close)
	graphs.State = state
	return plans, graphs
}

// update runs the update of a step with some gradients.
func (k compiledStep) update(t testing.TB, set step.Settings) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(set.Step), 1))
	var grads [][]float32
	for _, r := range k.Plan().Rules {
		g := make([]float32, k.Param(r.Name).Shape().Size())
		for i := range g {
			g[i] = float32(rng.NormFloat64()) * 1e-2
		}
		grads = append(grads, g)
	}
	ready, err := k.ReadyUpdate(k.State, grads, set)
	if err == nil {
		err = ready()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// exact is a quantizer without sums, because their order differs between executors.
const exact = `quantizer={weights={plugin="absmax", granularity="row"}}`

// TestPlansAreGraphs checks that updates by a plan and in a graph give the same bits, for programs
// without sums.
func TestPlansAreGraphs(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	if testrun.Device(t).Kind() != device.CPU {
		t.Skip("other devices have no plans")
	}
	for name, overrides := range map[string][]string{
		"adamw": {`optimizer={plugin="adamw"}`, exact},
		"sgd":   {`optimizer={plugin="sgd", momentum=0.9, nesterov=true, dampening=0.0}`, exact},
		"sgd, l2": {`optimizer={plugin="sgd", momentum=0.9, dampening=0.5, l2=0.1}`,
			"train.weight_decay=0.0", exact},
		"plain":    {`optimizer={plugin="sgd"}`, "train.weight_decay=0.0", "train.clip=0.0", exact},
		"coupled":  {`optimizer={plugin="adamw"}`, `method.form="coupled"`, exact},
		"official": {`optimizer={plugin="adamw"}`, `method.variant="official"`, exact},
		"trained":  {`optimizer={plugin="adamw"}`, `quantizer={plugin="lsq"}`},
		"fixed":    {`optimizer={plugin="adamw"}`, `quantizer={plugin="grid", step=0.01}`},
		"oscireset": {`optimizer={plugin="adamw"}`,
			`method={name="oscireset", reset_start=0.0, reset_every=4, reset_window=2, reset_threshold=1.5}`,
			exact},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append(overrides, testrun.TwoLayers, "model.vocab=32")...)
			plans, graphs := pair(t, cfg)
			for i := range 9 { // without correction and with it
				set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 2.9e-3, Lambda: float64(i % 3),
					Statistics: i%4 > 1}
				plans.update(t, set)
				graphs.update(t, set)
			}
			sameBits(t, "plans and graphs", testrun.Download(t, plans.Compiled, plans.State),
				testrun.Download(t, graphs.Compiled, graphs.State))
		})
	}
}

// TestRotationsOfUpdates checks that corrections that rotate quantized values back have the same
// results by a plan as in a graph, up to rounding.
func TestRotationsOfUpdates(t *testing.T) {
	if testrun.Device(t).Kind() != device.CPU {
		t.Skip("other devices have no plans")
	}
	for _, method := range []string{`form="decoupled"`, `form="coupled"`,
		`form="decoupled", variant="official"`} {
		t.Run(method, func(t *testing.T) {
			cfg := testrun.Config(t, testrun.TwoLayers, `quantizer={plugin="quest"}`, "method={"+method+"}",
				"model.vocab=32")
			plans, graphs := pair(t, cfg)
			var ends [2]map[string][]float32
			for i, k := range []compiledStep{plans, graphs} {
				k.update(t, step.Settings{Step: 1, Rate: 1e-3, NextRate: 1e-3, Lambda: 2, Statistics: true})
				ends[i] = testrun.Download(t, k.Compiled, k.State)
			}
			// Rounding errors are relative to x, also those of x − Q(x). In the coupled form the first
			// moment contains (1 − β₁)·λ = 0.2 of them; parameters are not compared, because Adam may divide
			// two small numbers.
			for name, list := range ends[1] {
				parameter, state := strings.CutPrefix(name, "state/")
				parameter, first := strings.CutSuffix(parameter, "/m")
				share := 1.0
				switch {
				case state && first:
					share = 0.2
				case state || cfg.Method.CAGE.Form == "coupled":
					continue
				default:
					parameter = strings.TrimPrefix(name, "param/")
				}
				bound := 0.0
				for _, x := range ends[1]["param/"+parameter] {
					bound = max(bound, 1e-6*share*math.Abs(float64(x)))
				}
				for i, want := range list {
					if got := ends[0][name][i]; !(math.Abs(float64(got-want)) <= bound) {
						t.Fatalf("%s, element %d: %v, in a graph %v", name, i, got, want)
					}
				}
			}
		})
	}
}

// TestResidualNotFinite checks that updates by a plan and in a graph give the same bits for a
// tensor whose residual is not finite, and which therefore gets no correction.
func TestResidualNotFinite(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", `optimizer={plugin="adamw"}`,
		exact)
	plans, graphs := pair(t, cfg)
	var results []map[string][]float32
	for _, k := range []compiledStep{plans, graphs} {
		tensors := testrun.Tensors(t, k.Compiled, k.State)
		for _, tensor := range tensors {
			if tensor.Name == "param/layers.1.mlp.w1" {
				tensor.Data[5] = float32(math.Inf(1))
			}
		}
		state, err := k.Upload(loaded(tensors))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(state.Close)
		var grads [][]float32
		for _, r := range k.Plan().Rules {
			grads = append(grads, make([]float32, state.Param(r.Name).Shape().Size()))
		}
		ready, err := k.ReadyUpdate(state, grads,
			step.Settings{Step: 1, Rate: 1e-2, NextRate: 1e-2, Lambda: 3})
		if err == nil {
			err = ready()
		}
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, testrun.Download(t, k.Compiled, state))
	}
	sameBits(t, "plans and graphs", results[0], results[1])
}

// BenchmarkUpdate measures the AdamW update of a Llama with 3.5 million parameters.
func BenchmarkUpdate(b *testing.B) {
	cfg := testrun.Config(b, "model.vocab=256", "model.layers=4", "model.width=256", "model.heads=4",
		`optimizer={plugin="adamw"}`)
	plan := testrun.Plan(b, cfg)
	plan.FullRotations = true
	plain, rotated := started(b, cfg, plan), started(b, cfg, testrun.Plan(b, cfg))
	for _, lambda := range []float64{0, 10} {
		for name, k := range map[string]compiledStep{"plain": plain, "rotated": rotated} {
			b.Run(fmt.Sprintf("lambda=%v/%s", lambda, name), func(b *testing.B) {
				var grads [][]float32
				for _, r := range k.Plan().Rules {
					g := make([]float32, k.Param(r.Name).Shape().Size())
					for i := range g {
						g[i] = float32(i%7-3) * 1e-3
					}
					grads = append(grads, g)
				}
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					ready, err := k.ReadyUpdate(k.State, grads,
						step.Settings{Step: i + 1, Rate: 1e-3, NextRate: 1e-3, Lambda: lambda})
					runtime.GC()
					b.StartTimer()
					if err == nil {
						err = ready()
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkDeep measures a step of 32 layers of width 16, of which most is the host's work.
func BenchmarkDeep(b *testing.B) {
	cfg := testrun.Config(b, "model.vocab=32", "model.layers=32", "model.width=16", "model.heads=2",
		`optimizer={plugin="adamw"}`)
	for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
		plan := testrun.Plan(b, cfg)
		plan.Dispatch = dispatch
		k := started(b, cfg, plan)
		tokens := batches(cfg, 1, 1)
		b.Run(fmt.Sprint(dispatch), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				set := step.Settings{Step: i + 1, Rate: 1e-3, NextRate: 1e-3, Lambda: 1}
				run(b, k.Compiled, k.State, tokens, set)
			}
		})
	}
}
