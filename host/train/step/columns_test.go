package step_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testmodel"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/testing/teststage"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// informed is a quantizer that keeps column statistics, as state and as a trained parameter.
type informed struct{}

func (informed) Describe() sdk.Description { return sdk.Description{Name: "informed"} }

func (informed) InitState(_ *program.Builder, _ program.Value, site sdk.Site) (sdk.State, error) {
	return sdk.State{"a.max": site.Activations.Max, "a.mean": site.Activations.Mean,
		"w.max": site.Weights.Max}, nil
}

func (informed) InitTrained(_ *program.Builder, _ program.Value, site sdk.Site) (sdk.State, error) {
	return sdk.State{"w.mean": site.Weights.Mean}, nil
}

func (informed) Quantize(
	_ *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	s := site.State["a.max"].Mul(site.State["a.mean"]).Mul(site.State["w.max"]).Scale(1.0 / 8).
		Shift(0.01)
	return sdk.Quantized{Value: x.Div(s).Round().Mul(s), Surrogate: x.Add(site.Trained["w.mean"]),
		Next: site.State}, nil
}

// rowsOf returns the rows of the weights, and of the activations of a batch at all sites, which the
// model computes in full precision.
func rowsOf(
	t *testing.T, plan *step.Plan, params map[string][]float32, tokens []int32,
) map[string][][]float32 {
	t.Helper()
	dev := testdevice.OpenCPU(t, engine.Options{})
	rows := map[string][][]float32{}
	var in []*engine.Buffer
	for _, p := range plan.Model.Params() {
		data := params["param/"+p.Name]
		in = append(in, testdevice.Upload(t, dev, data, p.Dims...))
		rows[p.Name] = slices.Collect(slices.Chunk(data, p.Dims[len(p.Dims)-1]))
	}
	dims := plan.Model.BatchDims(plan.Batch, plan.Context)
	in = append(in, testdevice.Upload(t, dev, tokens, dims...))
	out := teststage.Compute(t, dev, plan.Model.Calls(network.Shape{}), in,
		func(_ *program.Builder, in []program.Value) []program.Value {
			return testmodel.Activations(plan.Model, in[:len(in)-1], in[len(in)-1],
				func(string) bool { return false })
		})
	for i, s := range plan.Model.ActivationSites(plan.Batch, plan.Context) {
		rows[s.Name] = slices.Collect(slices.Chunk(out[i], s.Width))
	}
	return rows
}

// statistics returns the largest and the mean magnitude in each column of rows.
func statistics(rows [][]float32) (largest, mean []float64) {
	largest, mean = make([]float64, len(rows[0])), make([]float64, len(rows[0]))
	for _, r := range rows {
		for i, v := range r {
			a := math.Abs(float64(v))
			largest[i], mean[i] = max(largest[i], a), mean[i]+a/float64(len(rows))
		}
	}
	return largest, mean
}

// TestColumns checks that the quantizers of both operands of a product get the statistics of both,
// computed by the model in full precision on the first batch. Weights that share an activation have
// common statistics. Steps do not change the statistics in the state.
func TestColumns(t *testing.T) {
	cfg := sgdConfig(t, "train.accumulate=2", "train.weight_decay=0.0")
	c := compileOn(t, testdevice.OpenCPU(t, engine.Options{}), planOf(t, cfg, informed{}, descent{}))
	plan := c.Plan()
	tokens := batches(cfg, 1, 2)
	s := newState(t, c, tokens[0]...)
	state := testrun.Download(t, c, s)
	rows := rowsOf(t, plan, state, tokens[0])
	shared := false
	for _, site := range plan.Model.ActivationSites(plan.Batch, plan.Context) {
		var weights [][]float32
		for _, w := range site.Feeds {
			weights = append(weights, rows[w]...)
		}
		shared = shared || len(site.Feeds) > 1
		aMax, aMean := statistics(rows[site.Name])
		wMax, wMean := statistics(weights)
		for _, operand := range append([]string{site.Name}, site.Feeds...) {
			for name, want := range map[string][]float64{
				program.KindQuantizerState.PartOf(operand, "a.max"):  aMax,
				program.KindQuantizerState.PartOf(operand, "a.mean"): aMean,
				program.KindQuantizerState.PartOf(operand, "w.max"):  wMax,
				"param/" + spec.Tensor{Name: "w.mean"}.At(operand):   wMean,
			} {
				for i, v := range state[name] {
					if !(math.Abs(float64(v)-want[i]) <= 1e-5*want[i]) {
						t.Fatalf("%s is %v in column %d, want %v", name, v, i, want[i])
					}
				}
			}
		}
	}
	if !shared {
		t.Error("no activation has several weights")
	}
	for name := range s.Tensors {
		if strings.Contains(name, spec.InputActivationsMax) {
			t.Errorf("%s stays among the tensors of the state", name)
		}
	}
	run(t, c, s, tokens, step.Settings{Step: 1, Rate: 0.1})
	s = throughCheckpoint(t, c, s)
	after := testrun.Download(t, c, s)
	for name, values := range state {
		if kept := strings.HasPrefix(name, "kept/"); kept && !slices.Equal(values, after[name]) {
			t.Errorf("%s has changed", name)
		}
	}
	evaluated(t, c, s, tokens[0])
}

// unknown is a model that does not list its activation sites.
type unknown struct{ model.Language }

func (unknown) ActivationSites(int, int) []model.ActivationSite { return nil }

// TestColumnsUnknown checks that statistics without a batch, or without activations, are errors.
func TestColumnsUnknown(t *testing.T) {
	plan := planOf(t, sgdConfig(t), informed{}, descent{})
	plan.Activations = nil
	plan.Rules = slices.DeleteFunc(slices.Clone(plan.Rules),
		func(r cage.Rule) bool { return strings.Contains(r.Name, ".input.") })
	c := testrun.Compile(t, plan)
	if _, err := c.NewState(t.Context(), 1, nil); err == nil ||
		!strings.Contains(err.Error(), "calibration") {
		t.Errorf("without tokens: %v", err)
	}
	if _, err := c.StartParams(nil); err == nil ||
		!strings.Contains(err.Error(), "a calibration text") {
		t.Errorf("for evaluation: %v", err)
	}
	plan.Model = unknown{plan.Model.(model.Language)}
	if _, err := step.Compile(testdevice.OpenCPU(t, engine.Options{}), plan); err == nil ||
		!strings.Contains(err.Error(), "but the model has none") {
		t.Errorf("without activations: %v", err)
	}
}

// TestColumnsReplicas checks that statistics of a batch do not depend on its division among
// replicas.
func TestColumnsReplicas(t *testing.T) {
	if testdevice.Kind() == device.CPU {
		t.Skip("the CPU is one replica")
	}
	starts := func(count int) map[string][]float32 {
		cfg := sgdConfig(t, fmt.Sprint("train.batch=", perReplica*replicas/count))
		c := compileOn(t, testdevice.Open(t, engine.Options{Count: count}),
			planOf(t, cfg, informed{}, descent{}))
		return testrun.Download(t, c,
			newState(t, c, testrun.Tokens(1, perReplica*replicas, cfg.Model.Context+1, vocab)...))
	}
	sameNearly(t, "one and two replicas", starts(1), starts(replicas))
}
