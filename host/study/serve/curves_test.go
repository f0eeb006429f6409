package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study/report"
)

// answered returns the number of points of each curve in a response, by panel and name.
func answered(t testing.TB, w *httptest.ResponseRecorder) (curves map[string]int, wrong string) {
	t.Helper()
	var a struct {
		Charts []struct {
			Panel string
			Chart struct {
				Series []struct {
					Name string
					X    []float64
					Y    []*float64
					Raw  []*float64
				}
			}
		}
		Partial bool
		Wrong   string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 || a.Partial {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	curves = map[string]int{}
	for _, c := range a.Charts {
		for _, s := range c.Chart.Series {
			if len(s.X) != len(s.Y) {
				t.Errorf("%s: %d places, %d values", s.Name, len(s.X), len(s.Y))
			}
			if raw := len(s.Raw); strings.Contains(s.Name, "smoothed") && raw != len(s.X) || raw > 0 &&
				raw != len(s.X) {
				t.Errorf("%s: %d places, %d values as recorded", s.Name, len(s.X), raw)
			}
			curves[c.Panel+" "+s.Name] = len(s.X)
		}
	}
	return curves, a.Wrong
}

// TestCurves checks that curves grow with the records, and start again when these are cut.
func TestCurves(t *testing.T) {
	root := runs(t)
	h := pages(root)
	b := filepath.Join(root, "b")
	want := func(steps int) {
		t.Helper()
		got, wrong := answered(t, get(t, h, "/curves", "run", b))
		loss := "training loss"
		if steps >= 50 {
			loss += ", smoothed; faint: as recorded"
		}
		want := map[string]int{"loss " + loss: steps, "lr learning rate": steps, "lambda λ": steps}
		if diff := cmp.Diff(want, got); diff != "" || wrong != "" {
			t.Errorf("%d steps: %s %s", steps, wrong, diff)
		}
	}
	want(40)
	put(t, b, "metrics.jsonl", records(1, 60)+`{"step":61,"lo`)
	want(60)
	put(t, b, "metrics.jsonl", records(1, 20))
	want(20)
	got, _ := answered(t, get(t, h, "/curves", "panel", "loss", "run", b, "run",
		filepath.Join(root, "a")))
	if diff := cmp.Diff(map[string]int{"loss b": 20, "loss a": 100}, got); diff != "" {
		t.Error(diff)
	}
}

// TestTeacher checks that the loss of a run with a teacher, which is another quantity than its
// validation loss, has a chart of its own.
func TestTeacher(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	put(t, root, "taught", "run.toml", "seed = 1\n")
	put(t, root, "taught", "metrics.jsonl",
		`{"step":1,"loss":0.1,"divergence":0.1,"cross_entropy":2}`+"\n"+`{"step":2,"loss":0.1,"divergence":0.1,"cross_entropy":2,"val_loss":2.5}`+"\n")
	put(t, root, "alone", "run.toml", "seed = 1\n")
	put(t, root, "alone", "metrics.jsonl", `{"step":1,"loss":2,"val_loss":2.5}`+"\n")
	h := pages(root)
	for run, want := range map[string]map[string]int{
		"taught": {"loss training loss": 2, "cross_entropy cross-entropy": 2,
			"cross_entropy validation loss": 1, "divergence divergence from the teacher": 2},
		"alone": {"loss training loss": 1, "loss validation loss": 1},
	} {
		got, wrong := answered(t, get(t, h, "/curves", "run", filepath.Join(root, run)))
		if diff := cmp.Diff(want, got); diff != "" || wrong != "" {
			t.Errorf("%s: %s %s", run, wrong, diff)
		}
	}
}

// TestCurvesOfAMissingRun checks that if a run is missing, the others are shown.
func TestCurvesOfAMissingRun(t *testing.T) {
	root := runs(t)
	a := filepath.Join(root, "a")
	got, wrong := answered(t, get(t, pages(root), "/curves", "panel", "loss", "run", a, "run",
		filepath.Join(root, "gone")))
	if len(got) != 1 || !strings.HasPrefix(wrong, "there is no run ") ||
		!strings.Contains(wrong, "gone") {
		t.Errorf("curves %v, %s", got, wrong)
	}
}

// TestLooksOfCurves checks that even with many runs, no two curves of the losses have the same
// colour and dash pattern.
func TestLooksOfCurves(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	query := []string{"panel", "loss"}
	for i := range 16 {
		name := fmt.Sprint("run", i)
		put(t, root, name, "run.toml", "seed = 1\n")
		put(t, root, name, "metrics.jsonl", `{"step":1,"loss":2,"val_loss":2.5}`+"\n")
		query = append(query, "run", filepath.Join(root, name))
	}
	var a struct {
		Charts []struct{ Chart report.Chart }
	}
	if err := json.Unmarshal(get(t, pages(root), "/curves", query...).Body.Bytes(), &a); err != nil ||
		len(a.Charts) != 1 {
		t.Fatal(err, a)
	}
	named := map[[2]int]string{}
	for _, c := range a.Charts[0].Chart.Series {
		look := [2]int{(c.Color - 1) % 7, (c.Dash - 1) % 8} // as chart.js has colours and dash patterns
		if other, taken := named[look]; taken {
			t.Errorf("%s looks like %s", c.Name, other)
		}
		named[look] = c.Name
	}
	if len(named) != 32 {
		t.Errorf("%d curves, want 32", len(named))
	}
}
