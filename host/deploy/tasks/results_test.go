package tasks_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestLoad: answers that were kept are judged as they were, and compare with others.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	evaluated(t, vfs.At(dir))
	list, err := tasks.LoadResults(vfs.At(dir), nil)
	if err != nil || len(list) != 1 {
		t.Fatal(err)
	}
	again := tasks.Summarize(list, nil)
	if got := fmt.Sprint(again.Results["piqa"]["acc,none"]); !strings.Contains(files(t, dir)["results.json"], `"acc,none": `+got) {
		t.Errorf("acc is %s now, before\n%s", got, files(t, dir)["results.json"])
	}
	same, err := tasks.Compare(list[0].Task, list[0].Samples, list[0].Samples)
	if err != nil || len(same) != 2 || same[0].Difference != 0 || same[0].Low != 0 || same[0].McNemar != 1 {
		t.Errorf("%+v, %v", same, err)
	}
	if _, err := tasks.Compare(list[0].Task, list[0].Samples, list[0].Samples[1:]); err == nil {
		t.Error("other numbers of items are compared")
	}
	if _, err := tasks.LoadResults(vfs.At(t.TempDir()), nil); err == nil || !strings.Contains(err.Error(), "no samples of a task") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestImpossible: numbers that JSON does not have stop an evaluation with a reason, or are texts in the results.
func TestImpossible(t *testing.T) {
	a := asking(t, "piqa")
	err := evaluate(vfs.At(t.TempDir()), broken{}, a)
	if err == nil || !strings.Contains(err.Error(), "item 0: the model's log-probability is NaN") {
		t.Errorf("%v", err)
	}
	r := &tasks.Result{Task: a.Task, Metrics: []tasks.Metric{{Name: "acc,none", Value: math.Inf(1)}}}
	dir := vfs.At(t.TempDir())
	if err := tasks.WriteResults(dir, nil, tasks.Summarize([]*tasks.Result{r}, nil)); err != nil || !strings.Contains(files(t, dir.Name)["results.json"], `"acc,none": "+Inf"`) {
		t.Errorf("%v, %v", files(t, dir.Name), err)
	}
}

// broken is a model whose weights are not numbers.
type broken struct{}

func (broken) Score(_ context.Context, _ []score.Request, _ func(int) bool, each func([]int, []score.Score) error) error {
	return each([]int{0}, []score.Score{{LogProb: math.NaN()}})
}

func (broken) Generate(context.Context, [][]int32, int, []string) ([]string, error) {
	return nil, errGone
}

// TestCompare: two models that differ on ten questions of 100, nine of them for the first.
func TestCompare(t *testing.T) {
	task, err := tasks.Open("piqa")
	if err != nil {
		t.Fatal(err)
	}
	var first, second []tasks.Sample
	for i := range 100 {
		values := func(right bool) map[string]float64 {
			if right {
				return map[string]float64{"acc,none": 1, "acc_norm,none": 1}
			}
			return map[string]float64{"acc,none": 0, "acc_norm,none": 0}
		}
		item := tasks.Item{Doc: i, Choices: []string{"a", "b"}}
		first = append(first, tasks.Sample{Item: item, Values: values(i < 59)})
		second = append(second, tasks.Sample{Item: item, Values: values(i >= 9 && i < 59 || i == 99)})
	}
	list, err := tasks.Compare(task, first, second)
	if err != nil {
		t.Fatal(err)
	}
	c := list[0]
	// Two-sided: 2·(1 + 10)/2¹⁰ = 0.021484375. The paired difference has the standard error √((0.1 − 0.08²)/100) = 0.0306.
	if c.OnlyFirst != 9 || c.OnlySecond != 1 || c.McNemar < 0.02148 || c.McNemar > 0.02149 {
		t.Errorf("%+v", c)
	}
	if c.Difference < 0.0799 || c.Difference > 0.0801 || c.Low < 0.01 || c.Low > 0.03 || c.High < 0.13 || c.High > 0.15 {
		t.Errorf("difference %v [%v, %v]", c.Difference, c.Low, c.High)
	}
}
