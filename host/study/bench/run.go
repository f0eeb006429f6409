package bench

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/study/bench/direct"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/resources"
)

// Report is the result of a step benchmark.
type Report struct {
	Workload
	FLOPs float64 `json:"flops_per_step"`
	// PluginStart and PluginHandover are the seconds until the plugins had started, and
	// until their programs had arrived.
	PluginStart    float64  `json:"plugin_start_seconds"`
	PluginHandover float64  `json:"plugin_handover_seconds"`
	Steps          []Timing `json:"steps"`
	// Seconds is the time of the configured step (see [Configured]).
	Seconds       float64 `json:"seconds"`
	FirstStepUnix float64 `json:"first_step_unix"` // FirstStep in seconds since 1970
	PeakMemory    int64   `json:"peak_memory_bytes"`
	// Choices are what the device computes fused, and what not, by its trials.
	Choices []engine.Choice `json:"choices,omitempty"`
	// PeakFLOPS is the speed of a large matrix product on this device, one on each of its
	// replicas, in floating-point operations per second: no step can be faster.
	PeakFLOPS float64 `json:"peak_flops"`
	// FirstStep is the time at which the first step of the first subject was done.
	FirstStep time.Time `json:"first_step"`
}

// Names of the subjects of [Run].
const (
	Plain    = "plugins"         // the configured step, λ_t = 0
	WithCAGE = "plugins + CAGE"  // the same with λ_t > 0
	Direct   = "written in host" // the same mathematics without plugins, λ_t = 0
	NoUpdate = "no update"       // forward and backward passes; the update is checked, but not computed
	Untaught = "no teacher"      // for a run with a teacher: the configured step without it, λ_t = 0
)

// Configured names the subject that is the training step of this configuration: the one
// with the correction, if it has one.
func Configured(cfg *config.Config) string {
	if cfg.Quantizer.Weights != nil && cfg.Method.Name == cage.NameCAGE && cfg.Method.CAGE.Form != cage.Off {
		return WithCAGE
	}
	return Plain
}

// Options say what to measure.
type Options struct {
	Rounds int
	// Direct adds the step written in the host. It is possible only for QuEST in the
	// paper's form with AdamW, with their default parameters.
	Direct bool
	// NoUpdate adds the step without the arithmetic of its update.
	NoUpdate bool
	// Only names the one subject to measure; empty measures all.
	Only string
	// Dispatch is used by [Run]; empty leaves it to the device.
	Dispatch step.Dispatch
	Finder   *plugin.Finder
	Plugins  plugin.Options
}

// warn is where devices send their warnings.
func (o Options) warn() func(message string, details ...any) {
	if o.Plugins.Logger == nil {
		return nil
	}
	return o.Plugins.Logger.Warn
}

// Run measures the configured step without and with the correction and, on request, the
// same mathematics written directly in the host.
func Run(ctx context.Context, cfg *config.Config, o Options) (*Report, error) {
	p, dev, err := openStep(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	list, err := variants(p, o)
	if err != nil {
		return nil, err
	}
	timings, err := measureInTurn(ctx, dev, list, cfg.Model.Vocab, o.Rounds)
	if err != nil {
		return nil, err
	}
	peak, err := peakFLOPS(dev)
	if err != nil {
		return nil, err
	}
	configured := max(0, slices.IndexFunc(timings, func(t Timing) bool { return t.Name == Configured(cfg) }))
	return &Report{
		Seconds: timings[configured].Seconds, FirstStepUnix: float64(timings[0].firstDone.UnixNano()) / 1e9, FirstStep: timings[0].firstDone, PeakFLOPS: peak * float64(dev.Count()),
		Workload: p.workload(dev), Steps: timings,
		FLOPs:       p.model.StepFLOPs(cfg.Train.Batch, cfg.Model.Context) * float64(cfg.Train.Accumulate),
		PluginStart: p.programs.Start.Seconds(), PluginHandover: p.programs.Handover.Seconds(), PeakMemory: resources.PeakMemory(), Choices: dev.Choices(),
	}, nil
}

// corrected gives rules without a method the correction, which acts where λ_t > 0.
func corrected(rules []cage.Rule) []cage.Rule {
	rules = slices.Clone(rules)
	for i, r := range rules {
		if r.Quantizer != nil && (r.Method == nil || len(r.Method.Modes()) == 0) {
			rules[i].Method = cage.Default
		}
	}
	return rules
}

// variants lists the steps that the options ask for.
func variants(ready *preparedStep, o Options) ([]variant, error) {
	plan := ready.plan
	plan.Dispatch = o.Dispatch
	correctable := ready.config.Method.Name == cage.NameCAGE || ready.config.Method.Name == cage.NameOff
	if correctable {
		plan.Rules = corrected(plan.Rules)
	}
	list := []variant{{Plain, plan, 0}}
	if len(plan.Weights) > 0 && correctable {
		list = append(list, variant{WithCAGE, plan, ready.config.Method.CAGE.Lambda})
	}
	if plan.Distillation != nil {
		untaught := plan
		untaught.Distillation = nil
		list = append(list, variant{Untaught, untaught, 0})
	}
	if o.NoUpdate {
		if plan.Dispatch == step.Single {
			return nil, fmt.Errorf("a step that is one executable cannot leave out its update: use the dispatch %s", step.Chain)
		}
		idle := plan
		idle.Executors, idle.Dispatch = []update.Executor{update.Null{}}, step.Chain
		list = append(list, variant{NoUpdate, idle, 0})
	}
	if o.Direct {
		direct, err := directPlan(ready.config, plan)
		if err != nil {
			return nil, err
		}
		list = append(list, variant{Direct, direct, 0})
	}
	list = slices.DeleteFunc(list, func(v variant) bool { return o.Only != "" && o.Only != v.name })
	if len(list) == 0 {
		return nil, fmt.Errorf("there is no step %q to measure", o.Only)
	}
	return list, nil
}

// directPlan replaces plugins' programs by graphs written in the host.
func directPlan(cfg *config.Config, plan step.Plan) (step.Plan, error) {
	q := cfg.Quantizer.Weights
	if cfg.Optimizer.Name != "adamw" || q == nil || q.Name != "quest" || cfg.Train.Averaging() != nil ||
		len(cfg.Quantizer.Overrides)+len(cfg.Optimizer.Groups) > 0 {
		return plan, fmt.Errorf("the step written in the host exists for the plugins quest and adamw only, " +
			"without train.average")
	}
	weights, activations := map[string]lower.Quantizer{}, map[string]lower.Quantizer{}
	for _, p := range plan.Model.Params() {
		if _, ok := plan.Weights[p.Name]; ok {
			weights[p.Name] = directQuest(p.Dims[len(p.Dims)-1])
		}
	}
	for _, s := range plan.Model.ActivationSites(plan.Batch, plan.Context) {
		if _, ok := plan.Activations[s.Name]; ok {
			activations[s.Name] = directQuest(s.Width)
		}
	}
	plan.Weights, plan.Activations = weights, activations
	plan.Update = direct.AdamW(0.9, 0.95, 1e-8)
	return plan, nil
}

// directQuest is the quantizer of rows of d elements, in 4 bits with the clipping
// factor of the paper's grid (the plugin's default).
func directQuest(d int) direct.Quest {
	const bits4, k4 = 4, 2.370255550006294
	return direct.Quest{Bits: bits4, Block: 1 << bits.TrailingZeros(uint(d)), K: k4}
}

// HasDirect tells whether the step is also written directly in the host, with a quantizer of so many bits; 0: its own default.
func HasDirect(cfg *config.Config, bits int) bool {
	q := cfg.Quantizer
	return len(q.Overrides)+len(cfg.Optimizer.Groups) == 0 && (bits == 0 || bits == 4) && q.Weights != nil && q.Weights.Name == "quest" && q.Activations != nil && q.Activations.Name == "quest" && cfg.Optimizer.Name == "adamw"
}

// peakFLOPS measures the speed of a product of two large matrices in the device's
// precision, the best of a few. A GPU needs larger ones before their product takes
// longer than its start.
func peakFLOPS(dev *engine.Device) (float64, error) {
	const tries = 6
	n := 1536
	if dev.Kind() != device.CPU {
		n = 8192
	}
	shape := shapes.Make(dtypes.Float32, n, n)
	product, err := dev.Compile("peak", []engine.Spec{{Name: "a", Shape: shape}, {Name: "b", Shape: shape}}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ReduceAllSum(engine.DotGeneral(in[0], []int{1}, nil, in[1], []int{0}, nil))}
	})
	if err != nil {
		return 0, err
	}
	defer product.Close()
	// Not all alike: a GPU is faster on numbers whose bits do not change.
	values := make([]float32, n*n)
	for i := range values {
		values[i] = float32(uint32(i)*2654435761)/(1<<31) - 1
	}
	var in [2]*engine.Buffer
	for i := range in {
		if in[i], err = engine.Upload(dev, values, n, n); err != nil {
			return 0, err
		}
		defer in[i].Finalize()
	}
	best := math.Inf(1)
	for range tries {
		began := time.Now()
		out, err := product.Run(in[:], nil)
		if err != nil {
			return 0, err
		}
		_, err = engine.Scalar[float32](out[0]) // waits for the device
		engine.FinalizeAll(out...)
		if err != nil {
			return 0, err
		}
		best = min(best, time.Since(began).Seconds())
	}
	return 2 * math.Pow(float64(n), 3) / best, nil
}
