package step_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/testrun"
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

// pair compiles a configuration with updates in tiles, and with all updates in a graph.
func pair(t testing.TB, cfg *config.Config) (tiles, graphs compiledStep) {
	t.Helper()
	var both [2]compiledStep
	for i := range both {
		plan := testrun.Plan(t, cfg)
		plan.FullRotations = true // quantizers rotate back, not updates
		if i == 1 {
			plan.OneGraph = true
		}
		both[i] = started(t, cfg, plan)
	}
	return both[0], both[1]
}

// exact is a quantizer without sums, because their order differs between executors.
const exact = `quantizer={weights={plugin="absmax", granularity="row"}}`

// TestTilesAreGraphs checks that updates in tiles and in a graph give the same bits.
func TestTilesAreGraphs(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	if testrun.Device(t).Kind() != device.CPU {
		t.Skip("other devices have no tiles")
	}
	for name, c := range map[string]struct {
		overrides []string
		tiled     func(tiled, all int) bool
	}{
		"adamw": {[]string{`optimizer={plugin="adamw"}`}, every},
		"sgd": {[]string{`optimizer={plugin="sgd", momentum=0.9, nesterov=true, dampening=0.0}`},
			every},
		"sgd, l2": {[]string{`optimizer={plugin="sgd", momentum=0.9, dampening=0.5, l2=0.1}`,
			"train.weight_decay=0.0"}, every},
		"plain": {[]string{`optimizer={plugin="sgd"}`, "train.weight_decay=0.0", "train.clip=0.0"},
			every},
		"coupled":  {[]string{`optimizer={plugin="adamw"}`, `method.form="coupled"`}, every},
		"official": {[]string{`optimizer={plugin="adamw"}`, `method.variant="official"`, exact}, every},
		"trained":  {[]string{`optimizer={plugin="adamw"}`, `quantizer={plugin="lsq"}`}, every},
		"fixed": {[]string{`optimizer={plugin="adamw"}`, `quantizer={plugin="grid", step=0.01}`},
			every},
		"muon": {[]string{`optimizer={plugin="muon"}`}, some},
		"oscireset": {[]string{`optimizer={plugin="adamw"}`,
			`method={name="oscireset", reset_start=0.0, reset_every=4, reset_window=2, reset_threshold=1.5}`,
			exact}, every},
		"lotion": {[]string{`optimizer={plugin="adamw"}`, `method={name="lotion"}`,
			`quantizer={weights={plugin="quest"}}`}, some},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append(c.overrides, testrun.TwoLayers, "model.vocab=32")...)
			tiles, graphs := pair(t, cfg)
			if tiled, all, err := tiles.Tiled("off", false); err != nil || !c.tiled(tiled, all) {
				t.Errorf("%d of %d rules are tiled (%v)", tiled, all, err)
			}
			for i := range 9 { // without correction and with it
				set := step.Settings{Step: i + 1, Rate: 3e-3, NextRate: 2.9e-3, Lambda: float64(i % 3),
					Statistics: i%4 > 1}
				sameResult(t, run(t, tiles.Compiled, tiles.State, batches(cfg, uint64(i), 1), set),
					run(t, graphs.Compiled, graphs.State, batches(cfg, uint64(i), 1), set))
			}
			sameBits(t, "tiles and graphs", testrun.Download(t, tiles.Compiled, tiles.State),
				testrun.Download(t, graphs.Compiled, graphs.State))
		})
	}
}

// TestRotationsInTiles checks that corrections that rotate quantized values back run in tiles, and
// have the same results as in a graph, up to rounding.
func TestRotationsInTiles(t *testing.T) {
	if testrun.Device(t).Kind() != device.CPU {
		t.Skip("other devices have no tiles")
	}
	for _, method := range []string{`form="decoupled"`, `form="coupled"`,
		`form="decoupled", variant="official"`} {
		t.Run(method, func(t *testing.T) {
			cfg := testrun.Config(t, testrun.TwoLayers, `quantizer={plugin="quest"}`, "method={"+method+"}",
				"model.vocab=32")
			var ends [2]map[string][]float32
			for i := range ends {
				plan := testrun.Plan(t, cfg)
				if i == 1 {
					plan.OneGraph = true
				}
				k := started(t, cfg, plan)
				run(t, k.Compiled, k.State, batches(cfg, 1, 1),
					step.Settings{Step: 1, Rate: 1e-3, NextRate: 1e-3, Lambda: 2, Statistics: true})
				if tiled, all, err := k.Tiled(string(cfg.Method.CAGE.Form), true); err != nil || i == 0 &&
					tiled != all {
					t.Errorf("%d of %d rules are tiled (%v)", tiled, all, err)
				}
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

func every(tiled, all int) bool { return tiled == all }
func some(tiled, all int) bool  { return tiled > 0 }

// sameResult compares results, up to the order of summation in the statistics.
func sameResult(t *testing.T, a, b step.Result) {
	t.Helper()
	if a.Loss != b.Loss || a.GradNorm != b.GradNorm {
		t.Fatalf("loss %v and norm %v, in a graph %v and %v", a.Loss, a.GradNorm, b.Loss, b.GradNorm)
	}
	if len(a.ErrorNorm2) != len(b.ErrorNorm2) || len(a.ValueNorm2) != len(b.ValueNorm2) {
		t.Fatalf("%d and %d norms, in a graph %d and %d", len(a.ErrorNorm2), len(a.ValueNorm2),
			len(b.ErrorNorm2), len(b.ValueNorm2))
	}
	for i := range a.ErrorNorm2 {
		for _, v := range [][2]float64{{a.ErrorNorm2[i], b.ErrorNorm2[i]},
			{a.ValueNorm2[i], b.ValueNorm2[i]}} {
			if math.Abs(v[0]-v[1]) > 1e-5*v[1] {
				t.Errorf("statistics %v, in a graph %v", v[0], v[1])
			}
		}
	}
}

// TestTilesNotFinite checks that updates in tiles and in a graph give the same bits for a tensor
// whose residual is not finite, and which therefore gets no correction.
func TestTilesNotFinite(t *testing.T) {
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32", `optimizer={plugin="adamw"}`)
	tiles, graphs := pair(t, cfg)
	var results []map[string][]float32
	for _, k := range []compiledStep{tiles, graphs} {
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
	sameBits(t, "tiles and graphs", results[0], results[1])
}

// BenchmarkUpdate measures the AdamW update of a Llama with 3.5 million parameters, in tiles and as
// a graph.
func BenchmarkUpdate(b *testing.B) {
	cfg := testrun.Config(b, "model.vocab=256", "model.layers=4", "model.width=256", "model.heads=4",
		`optimizer={plugin="adamw"}`)
	tiles, graphs := pair(b, cfg)
	rotated := started(b, cfg, testrun.Plan(b, cfg))
	for _, lambda := range []float64{0, 10} {
		for name, k := range map[string]compiledStep{"tiles": tiles, "graph": graphs,
			"rotated": rotated} {
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
