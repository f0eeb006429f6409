package step_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/lotion"
	"github.com/cage-qat/cage/host/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// clock is an optimizer that shows when its programs run: observation counts the
// updates, a refresh notes 10 times the update (plus 1 the first time), and the
// direction is the last note.
type clock struct{ descent }

func (clock) Init(b *program.Builder, _ program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"count": b.Const(0), "note": b.Const(0)}, nil
}

func (clock) Observe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"count": in.State["count"].Shift(1)}, nil
}

func (clock) Refresh(_ *program.Builder, in sdk.RefreshInput, first bool, _ sdk.Tensor) (sdk.State, error) {
	note := in.State["count"].Scale(10)
	if first {
		note = note.Shift(1)
	}
	return sdk.State{"note": note}, nil
}

func (clock) RefreshAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 2, Next: 4, Every: 3} }

func (clock) Update(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (program.Value, sdk.State, error) {
	return b.Zeros(t.Shape...).Add(in.State["note"]), in.State, nil
}

// TestRefresh: an update is observation, refresh if one is due, update; each sees
// what the one before left, also across a checkpoint.
func TestRefresh(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.0")
	k := testrun.Compile(t, planOf(t, cfg, grid{}, clock{}))
	s := newState(t, k)
	before := testrun.Download(t, k, s)
	const rate = 0.5
	notes := []float32{0, 21, 21, 40, 40, 40, 70, 70} // of updates 1, 2, …
	moved := float32(0)
	for i, note := range notes {
		run(t, k, s, batches(cfg, 1, 1), step.Settings{Step: i + 1, Rate: rate, Lambda: 0})
		moved += rate * note
		if i == 4 {
			s = throughCheckpoint(t, k, s)
		}
	}
	after := testrun.Download(t, k, s)
	for _, p := range k.Plan().Model.Params() {
		if got := after["state/"+p.Name+"/count"][0]; got != float32(len(notes)) {
			t.Errorf("%s was observed %v times in %d updates", p.Name, got, len(notes))
		}
		for i, x := range before["param/"+p.Name] {
			got := after["param/"+p.Name][i]
			if want := x - moved; math.Abs(float64(got-want)) > 1e-3 {
				t.Fatalf("%s, element %d: %v became %v, want %v", p.Name, i, x, got, want)
			}
		}
	}
}

// throughCheckpoint copies a state to host memory and back.
func throughCheckpoint(t *testing.T, k *step.Kernels, s *step.State) *step.State {
	t.Helper()
	tensors, err := k.Download(s)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]step.Tensor{}
	for _, tensor := range tensors {
		byName[tensor.Name] = tensor
	}
	pending := k.PendingRefreshes(s)
	s.Close()
	load := func(name string) (step.Tensor, error) { return byName[name], nil }
	loaded, err := k.Upload(load)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loaded.Close)
	if err := k.RestoreRefreshes(loaded, pending, load); err != nil {
		t.Fatal(err)
	}
	return loaded
}

// learned is a quantizer with a trained scale, whose gradient is the sum of that on
// the value: Q(x) = round(8x/s)·s/8, differentiated as x + s.
type learned struct{}

func (learned) Describe() sdk.Description { return sdk.Description{Name: "learned"} }

func (learned) InitTrained(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"s": x.Abs().ReduceMax(0, 1).Shift(0.5)}, nil
}

func (learned) Quantize(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	s := site.Trained["s"]
	value := x.Div(s).Scale(8).Round().Mul(s).Scale(1.0 / 8)
	return sdk.Quantized{Value: value, Surrogate: x.Add(s)}, nil
}

// TestTrainedParameters: trained parameters of quantizers start from the tensor, get
// the surrogate's gradient, and go through checkpoints like all others.
func TestTrainedParameters(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.0")
	k := testrun.Compile(t, planOf(t, cfg, learned{}, descent{}))
	plan := k.Plan()
	if got, want := len(plan.Trained()), len(plan.Weights)+len(plan.Activations); got != want {
		t.Fatalf("%d trained parameters, want one for each of %d quantizers", got, want)
	}
	b := batches(cfg, 1, 1)
	s, err := k.NewState(3, b[0])
	if err != nil {
		t.Fatal(err)
	}
	s = throughCheckpoint(t, k, s)
	before := testrun.Download(t, k, s)
	run(t, k, s, b, step.Settings{Step: 1, Rate: 1})
	after := testrun.Download(t, k, s)
	for _, p := range plan.Model.Params() {
		if !p.Quantized {
			continue
		}
		largest, moved := 0.0, 0.0
		for i, x := range before["param/"+p.Name] {
			largest = math.Max(largest, math.Abs(float64(x)))
			moved += float64(after["param/"+p.Name][i]) - float64(x)
		}
		name := "param/" + step.TrainedName(p.Name, "s")
		if got := float64(before[name][0]); math.Abs(got-largest-0.5) > 1e-6 {
			t.Errorf("%s starts at %v, want %v", name, got, largest+0.5)
		}
		// d/ds is the sum of d/dx, and plain gradient descent moves by both alike.
		if got := float64(after[name][0] - before[name][0]); math.Abs(got-moved) > 1e-4 {
			t.Errorf("%s moved by %v, want the %v that the weights moved together", name, got, moved)
		}
	}
	for _, site := range plan.Model.ActivationSites(plan.Batch, plan.Context) {
		name := "param/" + step.TrainedName(site.Name, "s")
		if before[name][0] < 0.5 || before[name][0] == after[name][0] {
			t.Errorf("%s was %v and is %v after a step", name, before[name], after[name])
		}
	}
}

// TestTrainedParametersAccumulate: two micro-batches give the mean of their gradients.
func TestTrainedParametersAccumulate(t *testing.T) {
	moves := func(accumulate int, parts ...int) map[string][]float32 {
		cfg := sgdConfig(t, "train.weight_decay=0.0")
		plan := planOf(t, cfg, learned{}, descent{})
		plan.Accumulate = accumulate
		k := testrun.Compile(t, plan)
		all := batches(cfg, 1, 2)
		s, err := k.NewState(3, all[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		before := testrun.Download(t, k, s)
		var chosen [][]int32
		for _, i := range parts {
			chosen = append(chosen, all[i])
		}
		run(t, k, s, chosen, step.Settings{Step: 1, Rate: 0.01})
		after := testrun.Download(t, k, s)
		for name, values := range after {
			for i := range values {
				values[i] -= before[name][i]
			}
		}
		return after
	}
	first, second, both := moves(1, 0), moves(1, 1), moves(2, 0, 1)
	for name, values := range both {
		for i := range values {
			mean := (first[name][i] + second[name][i]) / 2
			if math.Abs(float64(values[i]-mean)) > 1e-6 {
				t.Fatalf("%s, element %d: two micro-batches move it by %v, want %v", name, i, values[i], mean)
			}
		}
	}
}

// TestCorrectionWithTrainedScale: the correction reads the trained parameters as
// constants and does not move them.
func TestCorrectionWithTrainedScale(t *testing.T) {
	result := func(lambda float64) map[string][]float32 {
		cfg := sgdConfig(t, "train.weight_decay=0.1")
		k := testrun.Compile(t, planOf(t, cfg, learned{}, descent{}))
		b := batches(cfg, 1, 1)
		s, err := k.NewState(3, b[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		run(t, k, s, b, step.Settings{Step: 1, Rate: 0.01, Lambda: lambda})
		return testrun.Download(t, k, s)
	}
	off, on := result(0), result(2)
	for name, values := range off {
		weight := false
		for _, p := range []string{"attn.qkv", "attn.out", "mlp.w1", "mlp.w2", "mlp.down"} {
			weight = weight || name == "param/layers.0."+p || name == "param/layers.1."+p
		}
		if same := cmp.Equal(values, on[name]); same == weight {
			t.Errorf("%s: the correction changes it: %t, want %t", name, !same, weight)
		}
	}
}

// TestLotion: training is in full precision with a regularized gradient, evaluation is
// quantized, and the Fisher average is part of the state.
func TestLotion(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.0", "train.clip=0.0")
	b := batches(cfg, 1, 1)
	train := func(q sdk.Quantizer, change func(*step.Plan)) (*step.Kernels, *step.State) {
		plan := planOf(t, cfg, q, descent{})
		plan.Activations = nil
		if change != nil {
			change(&plan)
		}
		k := testrun.Compile(t, plan)
		s := newState(t, k)
		for i := range 3 {
			run(t, k, s, b, step.Settings{Step: i + 1, Rate: 0.1, Statistics: i == 1 && q != nil})
		}
		return k, s
	}
	lotionWith := func(coeff float64) func(*step.Plan) {
		return func(p *step.Plan) {
			p.FullPrecision = true
			for i := range p.Rules {
				p.Rules[i].Lotion = &lotion.Method{Coeff: coeff, FisherDecay: 0.5, Denominator: 8}
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
	k, s := train(grid{}, lotionWith(1e4))
	on := testrun.Download(t, k, s)
	for _, p := range k.Plan().Model.Params() {
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
	losses := func(k *step.Kernels, s *step.State) []float32 {
		e, err := k.Evaluator(s)
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

// TestFailedRefresh: a factorization that fails leaves the preconditioner as it was,
// at most three times in a row.
func TestFailedRefresh(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.0")
	k := testrun.Compile(t, planOf(t, cfg, nil, clock{}))
	failing := true
	k.SetExecutor(func(p *program.Program, in map[string]reference.Tensor) (map[string]reference.Tensor, error) {
		if failing {
			return nil, errors.New("no convergence")
		}
		return reference.Run(p, in)
	})
	s := newState(t, k)
	note := "state/" + k.Plan().Model.Params()[0].Name + "/note"
	for i := range 14 { // refreshes are due at 2, 4, 7, 10, 13
		failing = i+1 != 7
		res, err := k.Step(s, batches(cfg, 1, 1), step.Settings{Step: i + 1, Rate: 0.1})
		if err != nil {
			t.Fatalf("update %d: %v", i+1, err)
		}
		if !s.Whole() {
			t.Errorf("update %d: the state is not whole", i+1)
		}
		due := i+1 == 2 || i+1 == 4 || i+1 == 10 || i+1 == 13
		if got := len(res.FailedRefreshes); due && got != len(k.Plan().Rules) || !due && got != 0 {
			t.Errorf("update %d: %d refreshes failed", i+1, got)
		}
		want := float32(0)
		if i+1 >= 7 {
			want = 70
		}
		if got := testrun.Download(t, k, s)[note][0]; got != want {
			t.Errorf("after update %d the note is %v, want %v", i+1, got, want)
		}
	}
	for t2 := 15; ; t2++ {
		_, err := k.Step(s, batches(cfg, 1, 1), step.Settings{Step: t2, Rate: 0.1})
		if err != nil {
			if t2 != 19 || !strings.Contains(err.Error(), "failed 4 times in a row: no convergence") {
				t.Errorf("update %d: %v", t2, err)
			}
			if s.Whole() {
				t.Error("a state that a step has left half replaced passes for whole")
			}
			return
		}
		if t2 > 30 {
			t.Fatal("failures are tolerated for ever")
		}
	}
}
