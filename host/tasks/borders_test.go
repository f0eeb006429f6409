package tasks_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/tasks"
)

// TestBoundaries: tokens at borders are cut as lm-eval cuts them.
func TestBoundaries(t *testing.T) {
	var golden struct {
		Rolling struct {
			Text    string
			IDs     []int32 `json:"token_ids"`
			Length  int     `json:"max_length"`
			Prefix  int32   `json:"prefix_token"`
			Windows []struct{ Context, Targets []int32 }

			Loglikelihood float64
			Words, Bytes  float64
		}
		Cases []struct {
			Context, Continuation string
			ContextIDs            []int32 `json:"context_ids"`
			ContinuationIDs       []int32 `json:"continuation_ids"`
		}
	}
	readJSON(t, "testdata/boundaries.json", &golden)
	e := encoder(t)
	for _, c := range golden.Cases {
		before, behind, err := e.Pair(c.Context, c.Continuation)
		if err != nil || !slices.Equal(before, c.ContextIDs) || !slices.Equal(behind, c.ContinuationIDs) {
			t.Errorf("%q and %q are %v and %v, want %v and %v, %v", c.Context, c.Continuation, before, behind, c.ContextIDs, c.ContinuationIDs, err)
		}
	}
	if _, _, err := e.Pair("apples", ""); err == nil {
		t.Error("an empty continuation has tokens")
	}
	r := golden.Rolling
	windows := tasks.Windows(r.IDs, r.Length, r.Prefix)
	if len(windows) != len(r.Windows) || len(golden.Cases) < 10 {
		t.Fatalf("%d windows, want %d", len(windows), len(r.Windows))
	}
	for i, w := range r.Windows {
		if !slices.Equal(windows[i].Context, w.Context) || !slices.Equal(windows[i].Targets, w.Targets) {
			t.Errorf("window %d is %v, want %v", i, windows[i], w)
		}
	}
	compareText(t, e, r.Text, r.Length, []float64{r.Loglikelihood, r.Words, r.Bytes})
}

// compareText compares a whole text's windows and numbers with lm-eval's.
func compareText(t *testing.T, e *tasks.Encoder, text string, length int, want []float64) {
	t.Helper()
	task, err := tasks.Parse("texts.toml", []byte(`name = "texts"
kind = "text"
split = "test"
question = ["{{ text }}"]
metrics = ["word_perplexity", "byte_perplexity", "bits_per_byte"]`))
	if err != nil {
		t.Fatal(err)
	}
	row, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	d, err := task.NewDoc("row", row, false)
	if err != nil {
		t.Fatal(err)
	}
	e.Context = length
	items, err := task.Items([]tasks.Doc{d}, nil, e, tasks.Options{})
	if err != nil || len(items[0].Scored) != 5 {
		t.Fatalf("%d windows, %v", len(items[0].Scored), err)
	}
	values, err := task.Judge(&items[0], &tasks.Answer{LogProbs: []float64{want[0] / 2, want[0] / 2, 0, 0, 0}})
	if err != nil || values["loglikelihood"] != want[0] || values["words"] != want[1] || values["bytes"] != want[2] {
		t.Errorf("%v, want %v, %v", values, want, err)
	}
	metrics := task.Aggregate([]map[string]float64{values})
	for i, value := range []float64{math.Exp(-want[0] / want[1]), math.Exp(-want[0] / want[2]), -want[0] / want[2] / math.Ln2} {
		if m := metrics[i]; math.Abs(m.Value-value) > 1e-9*value {
			t.Errorf("%s is %v, want %v", m.Name, m.Value, value)
		}
	}
}

// TestStops: texts are cut where lm-eval cuts them.
func TestStops(t *testing.T) {
	var golden struct {
		Cases []struct {
			Text, Result string
			Stop         []string
		}
	}
	readJSON(t, "testdata/stops.json", &golden)
	for _, c := range golden.Cases {
		if got := tasks.Cut(c.Text, c.Stop); got != c.Result {
			t.Errorf("%q is cut to %q, want %q", c.Text, got, c.Result)
		}
	}
	if len(golden.Cases) < 5 {
		t.Errorf("%d cases", len(golden.Cases))
	}
}
