package train_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

// largestDifference is that of a tensor between two checkpoints.
func largestDifference(a, b map[string][]float32, name string) float64 {
	if len(a[name]) == 0 || len(a[name]) != len(b[name]) {
		return math.Inf(1)
	}
	d := 0.0
	for i, v := range a[name] {
		d = max(d, math.Abs(float64(v)-float64(b[name][i])))
	}
	return d
}

func largestValue(values []float32) float64 {
	largest := 0.0
	for _, v := range values {
		largest = max(largest, math.Abs(float64(v)))
	}
	return largest
}

// losses returns the training losses that a run recorded.
func losses(t *testing.T, dir string) []float64 {
	t.Helper()
	var list []float64
	for _, r := range records(t, dir) {
		if r.ValLoss == nil {
			list = append(list, float64(r.Loss))
		}
	}
	return list
}

func records(t *testing.T, dir string) []metrics.Record {
	t.Helper()
	list, err := metrics.Read[metrics.Record](rundir.At(dir).Metrics())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func relative(got, want float64) float64 { return math.Abs(got-want) / math.Abs(want) }

// poison puts NaN in a part of a tensor of a run's newest checkpoint.
func poison(t *testing.T, cfg *config.Config, name string, part func(dims []int) (from, to int)) {
	t.Helper()
	dir := rundir.At(cfg.Train.Out).Checkpoints()
	s := testrun.Newest(t, cfg.Train.Out)
	for i, tensor := range s.Tensors {
		if tensor.Name != name {
			continue
		}
		values, err := safetensors.Values[float32](tensor)
		if err != nil {
			t.Fatal(err)
		}
		from, to := part(tensor.Shape)
		for j := range values[from:to] {
			values[from+j] = float32(math.NaN())
		}
		if s.Tensors[i], err = safetensors.New(name, tensor.Shape, values); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := checkpoint.Save(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
}

// evaluate is the loss of a run's newest checkpoint on its validation set.
func evaluate(t *testing.T, run string) float64 {
	t.Helper()
	loss, _ := testrun.Loss(t, run, trained.Options{})
	return loss
}
