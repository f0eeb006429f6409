package step_test

import (
	"fmt"
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

// observing is a quantizer that rounds to eighths of a moving average of the largest magnitudes.
// Its state also counts the steps, and holds the largest element of the last one.
type observing struct{}

func (observing) Describe() sdk.Description { return sdk.Description{Name: "observing"} }

func (observing) InitState(b *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"average": x.Abs().MaxAll().Shift(0.5), "steps": b.Zeros(2), "peak": x.MaxAll()},
		nil
}

func (observing) Maximum(s string, _ sdk.Site) bool { return s == "peak" }

func (observing) Quantize(
	_ *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	s := site.State["average"].Scale(1.0 / 8)
	next := sdk.State{"average": site.State["average"].Scale(0.75).Add(x.Abs().MaxAll().Scale(0.25)),
		"steps": site.State["steps"].Shift(1), "peak": x.MaxAll()}
	return sdk.Quantized{Value: x.Div(s).Round().Mul(s), Next: next}, nil
}

// observingStep returns a step with the quantizer observing under the given dispatch.
func observingStep(t *testing.T, d step.Dispatch, overrides ...string) compiledStep {
	t.Helper()
	cfg := sgdConfig(t, overrides...)
	plan := planOf(t, cfg, observing{}, descent{})
	plan.Dispatch = d
	k := inGraphs(t, cfg, plan)
	if err := k.Prepare(true); err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKeptState checks that a step as one executable leaves the same bits in the state of
// quantizers as the chain, in every form of the correction, for several micro-batches, and after
// resuming. A skipped step does not change the state.
func TestKeptState(t *testing.T) {
	const last = 5
	for name, overrides := range map[string][]string{
		"paper":      {"train.weight_decay=0.1"},
		"official":   {`method.variant="official"`},
		"coupled, 3": {`method.form="coupled"`, "train.accumulate=3"},
	} {
		if testing.Short() && name != "coupled, 3" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			a, b := observingStep(t, step.Chain, overrides...), observingStep(t, step.Single, overrides...)
			for i := 1; i <= last; i++ {
				if i == 3 { // resume with the other dispatch
					b = compiledStep{a.Compiled, throughCheckpoint(t, a.Compiled, b.State)}
				}
				tokens := batches(sgdConfig(t), uint64(10*i), a.Plan().Accumulate)
				if i == last {
					tokens[0][0] = vocab // makes the loss NaN
				}
				before := testrun.Download(t, a.Compiled, a.State)
				set := step.Settings{Step: i, Rate: 0.1, NextRate: 0.05, Lambda: float64(i / 3),
					Statistics: i%2 == 0}
				x, y := run(t, a.Compiled, a.State, tokens, set), run(t, b.Compiled, b.State, tokens, set)
				if x.Skipped != (i == last) || y.Skipped != x.Skipped {
					t.Fatalf("step %d: skipped %t and %t", i, x.Skipped, y.Skipped)
				}
				if x.Skipped {
					sameBits(t, "a skipped step", before, testrun.Download(t, a.Compiled, a.State))
				} else {
					sameOutcome(t, i, x, y)
				}
			}
			after := testrun.Download(t, a.Compiled, a.State)
			sameBits(t, "after the last step", after, testrun.Download(t, b.Compiled, b.State))
			if got := after[program.KindQuantizerState.PartOf("layers.0.mlp.down", "steps")]; !slices.Equal(
				got, []float32{last - 1, last - 1}) {
				t.Errorf("the state has counted %v steps, want %d", got, last-1)
			}
		})
	}
}

// TestKeptStateOfStep checks the new state of quantizers. For a weight it follows from the weight
// before the step; for an activation it is the mean or maximum over micro-batches, each of which
// starts from the state before the step.
func TestKeptStateOfStep(t *testing.T) {
	tokens := batches(sgdConfig(t), 7, 2)
	after := func(parts ...[]int32) (before, after map[string][]float32) {
		c := observingStep(t, step.Chain,
			[]string{"train.accumulate=1", "train.accumulate=2"}[len(parts)-1])
		before = testrun.Download(t, c.Compiled, c.State)
		run(t, c.Compiled, c.State, parts, step.Settings{Step: 1, Rate: 0.1})
		return before, testrun.Download(t, c.Compiled, c.State)
	}
	before, both := after(tokens...)
	_, first := after(tokens[0])
	_, second := after(tokens[1])
	for name, values := range before {
		if name[:5] != "kept/" {
			continue
		}
		for i := range values {
			want := (first[name][i] + second[name][i]) / 2
			if strings.HasSuffix(name, "/peak") {
				want = max(first[name][i], second[name][i])
			}
			if math.Abs(float64(both[name][i]-want)) > 1e-6 {
				t.Errorf("%s is %v after both micro-batches, want %v", name, both[name][i], want)
			}
		}
	}
	const weight = "layers.0.mlp.down"
	largest := 0.0
	for _, v := range before["param/"+weight] {
		largest = max(largest, math.Abs(float64(v)))
	}
	average := program.KindQuantizerState.PartOf(weight, "average")
	near(t, "the average at the start", float64(before[average][0]), largest+0.5, 1e-6)
	near(t, "the average of a weight", float64(both[average][0]), 0.75*(largest+0.5)+0.25*largest,
		1e-6)
}

// TestReplicasKeepState checks that the state on two replicas equals the state on one replica with
// twice as many micro-batches, from the start.
func TestReplicasKeepState(t *testing.T) {
	if testdevice.Kind() == device.CPU {
		t.Skip("the CPU is one replica")
	}
	observed := func(count int, d step.Dispatch) compiledStep {
		cfg := sgdConfig(t, fmt.Sprint("train.batch=", perReplica*count),
			fmt.Sprint("train.accumulate=", replicas/count), `device.kind="cuda"`,
			fmt.Sprint("device.count=", count))
		plan := planOf(t, cfg, observing{}, descent{})
		plan.Dispatch = d
		c := compileOn(t, testdevice.Open(t, engine.Options{Count: count}), plan)
		return compiledStep{c,
			newState(t, c, testrun.Tokens(1, perReplica*count, cfg.Model.Context+1, vocab)...)}
	}
	for _, d := range []step.Dispatch{step.Single, step.Chain} {
		one, two := observed(1, d), observed(replicas, d)
		length := one.Plan().Context + 1
		// the first site: no activation before it is quantized
		first := program.KindQuantizerState.PartOf("layers.0.attn.qkv.input", "peak")
		var peaks []float32
		for _, part := range parts([][]int32{testrun.Tokens(1, replicas*perReplica, length, vocab)},
			perReplica*length) {
			peaks = append(peaks,
				testrun.Download(t, one.Compiled, newState(t, one.Compiled, part...))[first]...)
		}
		if start := testrun.Download(t, two.Compiled, two.State)[first]; start[0] != slices.Max(peaks) {
			t.Errorf("the peak starts at %v, those of the parts are %v", start, peaks)
		}
		var err error
		if one.State, err = one.Upload(loaded(testrun.Tensors(t, two.Compiled, two.State))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.State.Close)
		for i := range 2 {
			b, set := testrun.Tokens(uint64(10*i), replicas*perReplica, length, vocab),
				step.Settings{Step: i + 1, Rate: 0.1}
			run(t, one.Compiled, one.State, parts([][]int32{b}, perReplica*length), set)
			run(t, two.Compiled, two.State, [][]int32{b}, set)
		}
		sameNearly(t, "one and two replicas", testrun.Download(t, one.Compiled, one.State),
			testrun.Download(t, two.Compiled, two.State))
	}
}

// TestEvaluationKeepsState checks that evaluation reads the state but does not change it.
func TestEvaluationKeepsState(t *testing.T) {
	tokens := batches(sgdConfig(t), 7, 1)
	c := observingStep(t, step.Chain)
	before := testrun.Download(t, c.Compiled, c.State)
	first := evaluated(t, c.Compiled, c.State, tokens[0])
	sameBits(t, "evaluated", before, testrun.Download(t, c.Compiled, c.State))
	const weight = "layers.0.mlp.down"
	q, err := c.Quantized(c.State, weight)
	if err != nil {
		t.Fatal(err)
	}
	s := before[program.KindQuantizerState.PartOf(weight, "average")][0] / 8
	for i, v := range q.Value {
		if want := float32(math.RoundToEven(float64(before["param/"+weight][i]/s))) * s; math.Abs(
			float64(v-want)) > 1e-6 {
			t.Fatalf("Q(x) is %v at %d, want %v", v, i, want)
		}
	}
	run(t, c.Compiled, c.State, tokens, step.Settings{Step: 1}) // the rate 0 keeps the parameters
	if slices.Equal(first, evaluated(t, c.Compiled, c.State, tokens[0])) {
		t.Error("the losses are the same with another state")
	}
	r, err := c.CodeReader([]step.WeightElements{{Weight: weight, Positions: []int32{0, 5}}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, residuals, err := r.Read(c.State); err != nil || len(residuals) != 2 {
		t.Errorf("codes: %v, %v", residuals, err)
	}
}
