package step_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// kept is an optimizer that follows the gradient and keeps it in the state.
type kept struct{ descent }

func (kept) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"gradient": b.Zeros(t.Shape...)}, nil
}

func (kept) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return in.Gradient, sdk.State{"gradient": in.Gradient}, nil
}

// keptProbes is kept with probes at random points, every third update.
type keptProbes struct {
	kept
	size float64 // of offsets, relative to the norm of gradients over all tensors
}

func (keptProbes) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	zero := b.Zeros(t.Shape...)
	return sdk.State{"gradient": zero, "probed": zero, "point": zero, "probing": b.Const(0)}, nil
}

func (keptProbes) ProbeAt(t sdk.Tensor) sdk.Due {
	if t.Role == sdk.TensorVector { // vectors are not probed
		return sdk.Due{}
	}
	return sdk.Due{First: 1, Next: 1, Every: 3}
}

func (keptProbes) Collect(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"norm2": in.Gradient.Square().SumAll()}, nil
}

func (k keptProbes) Probe(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, error) {
	signs := b.RandomBits(in.Noise, t.Shape...).And(b.ConstUint(1)).Convert(program.Float).Scale(2).
		Shift(-1)
	return signs.Scale(k.size).Mul(in.Global["norm2"].Sqrt()), nil
}

func (k keptProbes) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	if t.Role == sdk.TensorVector {
		zero := b.Zeros(t.Shape...)
		return in.Gradient, sdk.State{"gradient": in.Gradient, "probed": zero, "point": zero,
			"probing": b.Const(0)}, nil
	}
	offset, err := k.Probe(b, in, t)
	return in.Gradient.Add(in.Probed).Scale(0.5),
		sdk.State{"gradient": in.Gradient, "probed": in.Probed, "point": in.X.Add(offset),
			"probing": in.Probing}, err
}

// TestProbe checks that the second gradient is that of a training at the probe point with the same
// batch. If no probe is due, it equals the first gradient.
func TestProbe(t *testing.T) {
	for i, overrides := range [][]string{{"train.clip=0.5"}, {"train.accumulate=2"},
		{`method.gradient="full"`}} {
		if testing.Short() && i != 1 {
			continue
		}
		cfg := sgdConfig(t, overrides...)
		clip := cfg.Train.Clip
		cfg.Train.Clip = 0
		plain := started(t, cfg, planOf(t, cfg, noisy{}, kept{}))
		cfg.Train.Clip = clip
		k := started(t, cfg, planOf(t, cfg, noisy{}, keptProbes{size: 0.01}))
		for i := range 5 {
			set := step.Settings{Step: i + 1, Rate: 0, NextRate: 0}
			tokens := batches(cfg, uint64(i), cfg.Train.Accumulate)
			res := run(t, k.Compiled, k.State, tokens, set)
			told := testrun.Download(t, k.Compiled, k.State)
			at := maps.Clone(told) // the tensors for plain
			moved := false
			for name, values := range told {
				tensor, ok := strings.CutPrefix(name, "state/")
				if !ok || !strings.HasSuffix(name, "/probing") || strings.Contains(name, "norm") {
					continue
				}
				tensor = strings.TrimSuffix(tensor, "/probing")
				if due := i%3 == 0; due != (values[0] == 1) {
					t.Errorf("%v: step %d: probing of %s is %v", overrides, i+1, tensor, values[0])
				}
				if values[0] == 1 {
					moved = true
					at["param/"+tensor] = told["state/"+tensor+"/point"]
				} else if !strings.HasSuffix(tensor, "norm") &&
					!slices.Equal(told["state/"+tensor+"/probed"], told["state/"+tensor+"/gradient"]) {
					t.Errorf("%v: step %d: what %s is told of no probe is not its gradient", overrides, i+1,
						tensor)
				}
			}
			if !moved {
				continue
			}
			s, err := plain.Upload(func(name string) (step.Tensor, error) {
				for _, x := range plain.Stored(plain.State) {
					if x.Name == name {
						return step.Tensor{Name: name, Dims: x.Dims, Data: at[name]}, nil
					}
				}
				return step.Tensor{}, fmt.Errorf("no %s", name)
			})
			if err != nil {
				t.Fatal(err)
			}
			run(t, plain.Compiled, s, tokens, set)
			there := testrun.Download(t, plain.Compiled, s)
			s.Close()
			factor := float32(1)
			if clip > 0 {
				factor = float32(min(1, clip/res.GradNorm))
			}
			for name, got := range told {
				if tensor, ok := strings.CutSuffix(name, "/probed"); ok && told[tensor+"/probing"][0] == 1 {
					want := slices.Clone(there[tensor+"/gradient"])
					for i := range want {
						want[i] *= factor
					}
					nearTo(t, fmt.Sprintf("%v: step %d: %s", overrides, i+1, name), got, want)
				}
			}
		}
	}
}

func nearTo(t *testing.T, what string, got, want []float32) {
	t.Helper()
	most := float32(0)
	for _, v := range want {
		most = max(most, v, -v)
	}
	for i := range want {
		if d := got[i] - want[i]; d > 1e-5*most || -d > 1e-5*most || d != d {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}

// TestProbeDispatch checks that steps between probes may be one executable, and that a training
// continues from a checkpoint with nearly the same result.
func TestProbeDispatch(t *testing.T) {
	for _, q := range []sdk.Quantizer{noisy{}, nil} {
		if testing.Short() && q == nil {
			continue
		}
		cfg := sgdConfig(t, "train.clip=0.5", "train.weight_decay=0.1", "train.accumulate=2")
		var ways [2]compiledStep
		for i, d := range []step.Dispatch{step.Chain, step.Single} {
			plan := planOf(t, cfg, q, keptProbes{size: 0.01})
			plan.Dispatch = d
			ways[i] = started(t, cfg, plan)
			if err := ways[i].Prepare(false); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 7 {
			set := step.Settings{Step: i + 1, Steps: 7, Rate: 0.1, NextRate: 0.1, Lambda: float64(i / 4)}
			tokens := batches(cfg, uint64(i), 2)
			for j, k := range ways {
				if i == 2 && j == 0 {
					ways[j].State = throughCheckpoint(t, k.Compiled, k.State)
				}
				run(t, ways[j].Compiled, ways[j].State, tokens, set)
			}
		}
		sameNearly(t, "dispatch", testrun.Download(t, ways[0].Compiled, ways[0].State),
			testrun.Download(t, ways[1].Compiled, ways[1].State))
	}
}

// TestProbeNotFinite checks that a step whose second gradient is not finite changes nothing.
func TestProbeNotFinite(t *testing.T) {
	cfg := sgdConfig(t)
	k := started(t, cfg, planOf(t, cfg, nil, keptProbes{size: math.Inf(1)}))
	before := testrun.Download(t, k.Compiled, k.State)
	res := run(t, k.Compiled, k.State, batches(cfg, 1, 1),
		step.Settings{Step: 1, Rate: 0.1, NextRate: 0.1})
	if !res.Skipped || !k.State.Consistent() {
		t.Errorf("skipped: %v, consistent: %v", res.Skipped, k.State.Consistent())
	}
	sameBits(t, "after a probe to nowhere", before, testrun.Download(t, k.Compiled, k.State))
}

// TestProbeReplicas checks that steps with second gradients, at points that depend on the norm of
// the whole gradient, have the same results on one and on two replicas. Nothing is quantized: a
// weight near the boundary between two codes may get the other code, which changes the third digit
// of the loss, with or without a second gradient.
func TestProbeReplicas(t *testing.T) {
	if testdevice.Kind() == device.CPU {
		t.Skip("the CPU is one replica")
	}
	on := func(count, accumulate int, d step.Dispatch) compiledStep {
		cfg := sgdConfig(t, "train.clip=0.3", fmt.Sprint("train.batch=", perReplica),
			fmt.Sprint("train.accumulate=", accumulate))
		plan := planOf(t, cfg, nil, keptProbes{size: 0.05})
		plan.Dispatch = d
		c := compileOn(t, testdevice.Open(t, engine.Options{Count: count}), plan)
		return compiledStep{c, newState(t, c)}
	}
	for _, d := range []step.Dispatch{step.Single, step.Chain} {
		one, two := on(1, replicas, d), on(replicas, 1, d)
		for i := range 6 {
			tokens := [][]int32{testrun.Tokens(uint64(i), replicas*perReplica, two.Plan().Context+1, vocab)}
			set := step.Settings{Step: i + 1, Rate: 0.1, NextRate: 0.1}
			x := run(t, one.Compiled, one.State, parts(tokens, perReplica*(two.Plan().Context+1)), set)
			y := run(t, two.Compiled, two.State, tokens, set)
			near(t, fmt.Sprintf("%s: loss of step %d", d, i+1), y.Loss, x.Loss, 1e-6)
			near(t, fmt.Sprintf("%s: norm of step %d", d, i+1), y.GradNorm, x.GradNorm, 1e-5)
		}
		sameNearly(t, "one and two replicas", testrun.Download(t, one.Compiled, one.State),
			testrun.Download(t, two.Compiled, two.State))
	}
}
