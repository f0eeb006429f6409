package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
)

// KernelReport lists the kernels of a training step.
type KernelReport struct {
	Build   engine.BuildInfo `json:"build"`
	Kernels []KernelTiming   `json:"kernels"`
}

// KernelTiming is one kernel, alone. Times are in seconds.
type KernelTiming struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Key names the kernel in a file of predictions: a hash of its text and grid.
	Key     string   `json:"key"`
	Inputs  []string `json:"inputs"`
	Outputs []string `json:"outputs"`
	// Calls are the places in the step that call it; those in a loop are executed more often.
	Calls     int   `json:"calls"`
	Instances int   `json:"instances"`
	Warps     int   `json:"warps"`
	Bytes     int64 `json:"bytes"`
	// Bound is the time that reading and writing takes, and Predicted the range of a prediction.
	Bound     float64   `json:"bound_seconds"`
	Predicted []float64 `json:"predicted_seconds_range,omitempty"`
	// Instructions and Registers are those of a thread; 0 if they are not known.
	Instructions int `json:"instructions,omitempty"`
	Registers    int `json:"registers,omitempty"`
	// Seconds is what was measured, and TimesBound that as a multiple of the bound; 0 on a device that has no kernels.
	Seconds    float64 `json:"seconds,omitempty"`
	TimesBound float64 `json:"times_bound,omitempty"`
}

// KernelPrediction is what is known of a kernel before it runs.
type KernelPrediction struct {
	Seconds      []float64 `json:"seconds"`
	Instructions int       `json:"instructions"`
	Registers    int       `json:"registers"`
}

// KernelOptions say how to measure kernels.
type KernelOptions struct {
	Options
	// Rate is the bytes a second that a kernel reads and writes at best.
	Rate float64
	// Predictions are by [KernelTiming].Key.
	Predictions map[string]KernelPrediction
}

// Kernels compiles a step and lists its kernels. On a GPU it times each alone, o.Rounds times; on the CPU it
// says which a GPU would have.
func Kernels(ctx context.Context, cfg *config.Config, o KernelOptions) (*KernelReport, error) {
	cfg.Device.Precision, cfg.Device.Kernels = device.BFloat16, device.FusedKernels
	if cfg.Device.Kind == device.CPU {
		cfg.Device.Kernels = device.BodyKernels
	}
	ready, dev, err := openStep(ctx, cfg, o.Options)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	plan := ready.plan
	plan.Dispatch = cmp.Or(o.Dispatch, step.Single)
	if len(plan.Weights) > 0 {
		plan.Rules = corrected(plan.Rules)
	}
	c, err := step.Compile(dev, plan)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.Prepare(false); err != nil {
		return nil, err
	}
	r := &KernelReport{Build: dev.BuildInfo()}
	uses := dev.KernelUses()
	first := slices.IndexFunc(uses, func(u engine.KernelUse) bool { return strings.HasPrefix(u.Program, "step") })
	for _, use := range uses {
		if first < 0 || use.Program != uses[first].Program { // the step is compiled in several forms
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t := describeKernel(use, o)
		if dev.Kind() != device.CPU {
			if t.Seconds, err = timeKernel(dev, use, o.Rounds); err != nil {
				return nil, fmt.Errorf("kernel %s: %w", t.Name, err)
			}
			t.TimesBound = t.Seconds / t.Bound
		}
		r.Kernels = append(r.Kernels, t)
	}
	slices.SortStableFunc(r.Kernels, func(a, b KernelTiming) int {
		total := func(t KernelTiming) float64 { return float64(t.Calls) * max(t.Seconds, t.Bound) }
		return cmp.Compare(total(b), total(a))
	})
	return r, nil
}

func describeKernel(use engine.KernelUse, o KernelOptions) KernelTiming {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d %d %d", use.Text, use.Grid, use.Warps, use.Stages))
	t := KernelTiming{
		Name: use.Name, Kind: kernelKind(use.Name), Key: hex.EncodeToString(sum[:6]), Inputs: shapeTexts(use.Inputs), Outputs: shapeTexts(use.Outputs),
		Calls: use.Calls, Instances: use.Grid, Warps: use.Warps, Bytes: use.Bytes(),
	}
	t.Bound = float64(t.Bytes) / o.Rate
	p := o.Predictions[t.Key]
	t.Predicted, t.Instructions, t.Registers = p.Seconds, p.Instructions, p.Registers
	return t
}

// kernelKind names the kinds as scripts/predict.py does.
func kernelKind(name string) string {
	switch {
	case strings.HasPrefix(name, "cage_loss"):
		return "softmax and loss"
	case strings.HasPrefix(name, "cage_blocks_product"):
		return "linear products"
	}
	return "quantization"
}

func shapeTexts(list []shapes.Shape) (texts []string) {
	for _, s := range list {
		texts = append(texts, fmt.Sprint(s))
	}
	return texts
}

// timeKernel measures a program that calls a kernel once, and one that calls it several times on other numbers: what a program takes
// besides is in both, and the difference is that of the calls.
func timeKernel(dev *engine.Device, use engine.KernelUse, rounds int) (float64, error) {
	const once, often = 1, 5
	var times [2]float64
	for i, calls := range []int{once, often} {
		median, err := timeCalls(dev, use, calls, rounds)
		if err != nil {
			return 0, err
		}
		times[i] = median
	}
	return max(times[1]-times[0], 0) / (often - once), nil
}

// timeCalls is the median time of a program with so many calls.
func timeCalls(dev *engine.Device, use engine.KernelUse, calls, rounds int) (median float64, err error) {
	var specs []engine.Spec
	for i := range calls {
		for j, s := range use.Inputs {
			specs = append(specs, engine.Spec{Name: fmt.Sprintf("call%d.%d", i, j), Shape: s})
		}
	}
	fill, err := dev.Compile("numbers for a kernel", []engine.Spec{{Name: "phase", Shape: shapes.Make(dtypes.Float32)}}, func(g *graph.Graph, in []*graph.Node) (list []*graph.Node) {
		for i, s := range specs {
			list = append(list, numbers(g, in[0], s.Shape, i))
		}
		return list
	})
	if err != nil {
		return 0, err
	}
	defer fill.Close()
	run, err := dev.Compile("kernel alone", specs, func(g *graph.Graph, in []*graph.Node) (list []*graph.Node) {
		for i := range calls {
			n := len(use.Inputs)
			list = append(list, use.Call(in[i*n:(i+1)*n], func([]*graph.Node) (out []*graph.Node) {
				for _, s := range use.Outputs {
					out = append(out, graph.Zeros(g, s))
				}
				return out
			})...)
		}
		return list
	})
	if err != nil {
		return 0, err
	}
	defer run.Close()
	phase, err := engine.Upload(dev, []float32{1})
	if err != nil {
		return 0, err
	}
	defer phase.Finalize()
	inputs, err := fill.Run([]*engine.Buffer{phase}, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, engine.FinalizeAll(inputs...)) }()
	if _, err := run.Median(inputs, 1); err != nil { // to warm up
		return 0, err
	}
	m, err := run.Median(inputs, rounds)
	return m.Seconds(), err
}

// numbers are some from −1 to 1, or from −7 to 7 for integers, different for each index. A GPU is faster on numbers whose bits do not
// change.
func numbers(g *graph.Graph, phase *graph.Node, s shapes.Shape, index int) *graph.Node {
	const stride = 1.37
	x := graph.IotaFull(g, shapes.Make(dtypes.Float32, s.Dimensions...))
	x = graph.Sin(graph.Add(graph.MulScalar(x, stride), graph.AddScalar(phase, float64(index))))
	if !s.DType.IsFloat() {
		x = graph.MulScalar(x, 7)
	}
	return graph.ConvertDType(x, s.DType)
}
