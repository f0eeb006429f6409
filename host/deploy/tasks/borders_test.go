package tasks_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/deploy/tasks"
)

// TestBoundaries checks that tokens at borders are split as in lm-eval.
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
		before, after, err := e.Pair(c.Context, c.Continuation)
		if err != nil || !slices.Equal(before, c.ContextIDs) || !slices.Equal(after, c.ContinuationIDs) {
			t.Errorf("%q and %q are %v and %v, want %v and %v, %v", c.Context, c.Continuation, before, after,
				c.ContextIDs, c.ContinuationIDs, err)
		}
	}
	if _, _, err := e.Pair("apples", ""); err == nil {
		t.Error("an empty continuation has tokens")
	}
	r := golden.Rolling
	windows := tasks.Windows(r.IDs, r.Length, r.Prefix)
	if len(windows) != len(r.Windows) || len(windows) == 0 || len(golden.Cases) == 0 {
		t.Fatalf("%d windows, want %d; %d borders", len(windows), len(r.Windows), len(golden.Cases))
	}
	for i, w := range r.Windows {
		if !slices.Equal(windows[i].Context, w.Context) ||
			!slices.Equal(windows[i].Continuation, w.Targets) {
			t.Errorf("window %d is %v, want %v", i, windows[i], w)
		}
	}
	compareText(t, e, r.Text, r.Length, len(r.Windows), []float64{r.Loglikelihood, r.Words, r.Bytes})
}

// TestMergedBorders checks texts where the last token of a context and the first of a continuation
// would be one token. The model gets the context's own ids, as in lm-eval 0.4.13
// (HFLM._encode_pair), which gave the values here. The first ids of the joint text would include
// letters of the requested continuation.
func TestMergedBorders(t *testing.T) {
	e := encoder(t)
	for _, c := range []struct {
		context, continuation string
		before, after         []int32
	}{
		{"The apple", "s of Inga", []int32{320, 270, 261, 79, 79, 75, 68},
			[]int32{291, 220, 40, 77, 70, 64}},
		{"Inga'", "s apples", []int32{320, 40, 77, 70, 64, 6}, []int32{261, 79, 79, 75, 260}},
		{"She counts th", "e apples", []int32{320, 50, 257, 265, 78, 84, 77, 83, 82, 256, 71},
			[]int32{79, 79, 75, 260}},
	} {
		whole, err := e.Encode(c.context + c.continuation)
		if err != nil || slices.Equal(whole[:len(c.before)-1], c.before[1:]) {
			t.Fatalf("no token of %q and %q crosses the border: %v, %v", c.context, c.continuation, whole,
				err)
		}
		before, after, err := e.Pair(c.context, c.continuation)
		if err != nil || !slices.Equal(before, c.before) || !slices.Equal(after, c.after) {
			t.Errorf("%q and %q are %v and %v, want %v and %v, %v", c.context, c.continuation, before, after,
				c.before, c.after, err)
		}
	}
}

// compareText compares a whole text's windows and numbers with lm-eval's.
func compareText(t *testing.T, e *tasks.Encoder, text string, length, windows int, want []float64) {
	t.Helper()
	task := parsed(t, `name = "texts"
kind = "text"
split = "test"
question = ["{{ text }}"]
metrics = ["word_perplexity", "byte_perplexity", "bits_per_byte"]`)
	object, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	d := row(t, task, "row", object)
	e.Context = length
	items, err := task.Items([]tasks.Doc{d}, nil, e, tasks.Options{})
	if err != nil || len(items[0].Scored) != windows {
		t.Fatalf("%d windows, want %d, %v", len(items[0].Scored), windows, err)
	}
	logProbs := make([]float64, windows) // their sum is lm-eval's, to the last bit
	logProbs[0] = want[0] / 2
	logProbs[windows-1] += want[0] / 2
	values, err := task.Judge(&items[0], &tasks.Answer{LogProbs: logProbs})
	if err != nil || values["loglikelihood"] != want[0] || values["words"] != want[1] ||
		values["bytes"] != want[2] {
		t.Errorf("%v, want %v, %v", values, want, err)
	}
	metrics := task.Aggregate([]map[string]float64{values})
	for i, value := range []float64{math.Exp(-want[0] / want[1]), math.Exp(-want[0] / want[2]),
		-want[0] / want[2] / math.Ln2} {
		if m := metrics[i]; math.Abs(m.Value-value) > 1e-9*value {
			t.Errorf("%s is %v, want %v", m.Name, m.Value, value)
		}
	}
}

// TestStops checks that texts are cut as in lm-eval.
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
	if len(golden.Cases) == 0 {
		t.Error("no cases")
	}
}
