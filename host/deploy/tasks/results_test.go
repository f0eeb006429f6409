package tasks_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestCompareFolders checks that two evaluations are compared item by item.
func TestCompareFolders(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	evaluated(t, vfs.At(dir))
	same, _, err := tasks.Compare(vfs.At(dir), vfs.At(dir))
	if err != nil || len(same) != 2 || same[0].Metric != "acc,none" ||
		!slices.Equal(same[0].First, same[0].Second) {
		t.Errorf("%+v, %v", same, err)
	}
	mean := stat.Mean(same[0].First, nil)
	if text := files(t, dir)["results.json"]; !strings.Contains(text,
		fmt.Sprintf(`"acc,none": %v`, mean)) {
		t.Errorf("acc is %v, and the results\n%s", mean, text)
	}
	if _, _, err := tasks.Compare(vfs.At(dir), vfs.At(other)); err == nil ||
		!strings.Contains(err.Error(), "no common task") {
		t.Errorf("an empty folder: %v", err)
	}
	samples, err := tasks.ReadSamples(vfs.At(dir).Join("samples_piqa.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for want, list := range map[string][]tasks.Sample{
		"one model answered": samples[1:],
		"item 0 is a different question for each model": append([]tasks.Sample{samples[1]},
			samples[1:]...),
	} {
		if err := tasks.WriteSamples(vfs.At(other).Join("samples_piqa.jsonl"), list); err != nil {
			t.Fatal(err)
		}
		if _, _, err := tasks.Compare(vfs.At(dir), vfs.At(other)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestImpossible checks that numbers that JSON does not have stop an evaluation with an error, or
// are strings in the results.
func TestImpossible(t *testing.T) {
	a := questions(t, "piqa")
	err := evaluate(vfs.At(t.TempDir()), broken{}, a)
	if err == nil || !strings.Contains(err.Error(), "item 0: the model's log-probability is NaN") {
		t.Errorf("%v", err)
	}
	r := &tasks.Result{Task: a.Task, Metrics: []tasks.Metric{{Name: "acc,none", Value: math.Inf(1)}}}
	dir := vfs.At(t.TempDir())
	if err := tasks.WriteResults(dir, nil, tasks.Summarize([]*tasks.Result{r}, nil)); err != nil ||
		!strings.Contains(files(t, dir.Name)["results.json"], `"acc,none": "+Inf"`) {
		t.Errorf("%v, %v", files(t, dir.Name), err)
	}
}

// broken is a model whose log-probabilities are NaN.
type broken struct{}

func (broken) Score(
	_ context.Context, _ []score.Request, _ func(int) bool, each func([]int, []score.Score) error,
) error {
	return each([]int{0}, []score.Score{{LogProb: math.NaN()}})
}

func (broken) Generate(context.Context, [][]int32, int, []string) ([]string, error) {
	return nil, errGone
}
