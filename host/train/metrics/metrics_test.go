package metrics_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

func full(step int) metrics.Record {
	applied := 12
	return metrics.Record{
		Step: step, Loss: 2.5, LR: 1e-3, Lambda: metrics.Some(0.25),
		Counts: map[string]int64{"weights_set_back": 1 << 40}, Tokens: 1 << 40, Seconds: 12.5,
		TokensPerSecond: metrics.Some(1234.5), GradNorm: metrics.Some(math.Inf(1)),
		ErrorNorm2: metrics.Some(3), ErrorRel: metrics.Some(0.01), AvgErrNorm: metrics.Some(0),
		AvgCorrNorm:   metrics.Some(0.1),
		AppliedParams: &applied, Pareto: metrics.Some(math.NaN()), ParetoSTE: metrics.Some(math.Inf(-1)),
		FlipRate: metrics.Some(0.125), Coherence: metrics.Some(0.5),
		CoherenceVector: metrics.Some(math.NaN()), DwellMean: metrics.Some(12.5),
		DwellMedian: metrics.Some(10), DwellP90: metrics.Some(40), DwellMax: metrics.Some(320),
		DwellVectorMean: metrics.Some(10),
		Visits:          metrics.Some(3.5), VisitSum: metrics.Some(0.75), ResidualMax: metrics.Some(0.25),
		Weights: map[string]metrics.WeightMeasures{
			"layers.0.attn.qkv": {FlipRate: metrics.Some(0.25), DwellMean: metrics.Some(11),
				Coherence: metrics.Some(0.5), CoherenceVector: metrics.Some(math.Inf(1))},
			"head": {},
		},
		ValLoss: metrics.Some(2.25), ValPPL: metrics.Some(math.Exp(2.25)), Skipped: 1,
	}
}

// sameNumber compares numbers by their bits, except NaN, of which JSON has only one.
var sameNumber = cmp.Comparer(func(a, b metrics.Number) bool {
	x, y := float64(a), float64(b)
	return math.Float64bits(x) == math.Float64bits(y) || math.IsNaN(x) && math.IsNaN(y)
})

func writeAll[E metrics.Entry](t testing.TB, w *metrics.Writer[E], entries ...E) {
	t.Helper()
	for _, e := range entries {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
}

func closeWriter[E metrics.Entry](t testing.TB, w *metrics.Writer[E]) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// resume continues a file after a step.
func resume[E metrics.Entry](t testing.TB, path string, step int) *metrics.Writer[E] {
	t.Helper()
	w, err := metrics.Resume[E](vfs.At(path), step)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func steps(records []metrics.Record) []int {
	var out []int
	for _, r := range records {
		out = append(out, r.Step)
	}
	return out
}

func TestNumber(t *testing.T) {
	tests := []struct {
		x    float64
		text string
	}{
		{0, "0"}, {math.Copysign(0, -1), "-0"}, {1.5, "1.5"}, {1e-300, "1e-300"}, {0.1, "0.1"},
		{math.MaxFloat64, "1.7976931348623157e+308"},
		{5e-324, "5e-324"}, {math.NaN(), `"NaN"`}, {math.Inf(1), `"Inf"`}, {math.Inf(-1), `"-Inf"`},
	}
	for _, test := range tests {
		text, err := json.Marshal(metrics.Number(test.x))
		if err != nil || string(text) != test.text {
			t.Errorf("%v is written as %s, %v; want %s", test.x, text, err, test.text)
		}
		var n metrics.Number
		if err := json.Unmarshal(text, &n); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := float64(n); math.Float64bits(got) != math.Float64bits(test.x) &&
			!(math.IsNaN(got) && math.IsNaN(test.x)) {
			t.Errorf("%v became %v", test.x, got)
		}
	}
	for _, text := range []string{`"nan"`, `"1"`, `true`, `null`, `[1]`, `1e999`} {
		var n metrics.Number
		if err := json.Unmarshal([]byte(text), &n); err == nil {
			t.Errorf("%s is read as %v", text, n)
		}
	}
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	w := resume[metrics.Record](t, path, 0)
	bare := metrics.Record{Step: 2, Loss: metrics.Number(math.NaN())}
	writeAll(t, w, full(1), bare)
	if got, err := metrics.Read[metrics.Record](vfs.At(path)); err != nil || len(got) != 2 {
		t.Errorf("before Close, %d records can be read, %v", len(got), err)
	}
	writeAll(t, w, full(2))
	if err := w.Write(full(1)); err == nil {
		t.Error("a record of an earlier step is written")
	}
	closeWriter(t, w)
	got, err := metrics.Read[metrics.Record](vfs.At(path))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]metrics.Record{full(1), bare, full(2)}, got, sameNumber); diff != "" {
		t.Errorf("records differ (-want +got):\n%s", diff)
	}
	data := get(t, path)
	if line := bytes.Split(data, []byte("\n"))[1]; string(
		line) != `{"step":2,"loss":"NaN","lr":0,"tokens":0,"seconds":0}` {
		t.Errorf("what was not measured is written: %s", line)
	}
}

// parse reads a file with this content.
func parse(t *testing.T, content []byte) ([]metrics.Record, error) {
	return metrics.Read[metrics.Record](put(t, filepath.Join(t.TempDir(), "metrics.jsonl"), content))
}

func TestParseErrorsNameTheLine(t *testing.T) {
	const ok = `{"step":3,"loss":1}` + "\n"
	tests := map[string]struct{ text, say string }{
		"not JSON":       {ok + "oops\n" + ok, "line 2"},
		"not an object":  {ok + "null\n", "line 2: is null"},
		"wrong type":     {ok + `{"step":"x"}` + "\n", "line 2"},
		"wrong number":   {`{"loss":"many"}` + "\n", "line 1"},
		"steps go back":  {ok + `{"step":2}` + "\n", "step 2 follows step 3"},
		"empty line":     {ok + "\n", "line 2"},
		"two in a line":  {`{"step":1}{"step":2}` + "\n", "line 1"},
		"null for a num": {`{"step":1,"loss":null}` + "\n", "line 1"},
	}
	for name, test := range tests {
		if _, err := parse(t, []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.say) {
			t.Errorf("%s: error %v, want one that says %q", name, err, test.say)
		}
	}
	got, err := parse(t, []byte(ok+`{"step":4,"unheard_of":[1]}`+"\n"+`{"step":5`))
	if err != nil || !slices.Equal(steps(got), []int{3, 4}) {
		t.Errorf("an unknown key and a torn line: steps %v, %v", steps(got), err)
	}
}

func FuzzParse(f *testing.F) {
	text, err := json.Marshal(full(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(text, '\n'))
	f.Add([]byte(`{"step":1,"loss":"NaN"}` + "\n" + `{"step":2`))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := parse(t, data)
		if err != nil {
			return
		}
		var again []byte
		for _, r := range records {
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			again = append(append(again, text...), '\n')
		}
		back, err := parse(t, again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(records, back, sameNumber); diff != "" {
			t.Fatalf("records changed:\n%s", diff)
		}
	})
}

func Example() {
	dir, err := os.MkdirTemp("", "metrics")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "metrics.jsonl")
	w, err := metrics.Resume[metrics.Record](vfs.At(path), 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	for step := 1; step <= 3; step++ {
		if err := w.Write(metrics.Record{Step: step, Loss: metrics.Number(4 - step),
			LR: 0.001}); err != nil {
			fmt.Println(err)
		}
	}
	if err := w.Close(); err != nil {
		fmt.Println(err)
	}
	// The run was stopped, and continues from a checkpoint of step 2.
	w, err = metrics.Resume[metrics.Record](vfs.At(path), 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := w.Write(metrics.Record{Step: 3, Loss: 1, LR: 0.001,
		ValLoss: metrics.Some(1.25)}); err != nil {
		fmt.Println(err)
	}
	if err := w.Close(); err != nil {
		fmt.Println(err)
	}
	text, _ := os.ReadFile(path)
	fmt.Print(string(text))
	// Output:
	// {"step":1,"loss":3,"lr":0.001,"tokens":0,"seconds":0}
	// {"step":2,"loss":2,"lr":0.001,"tokens":0,"seconds":0}
	// {"step":3,"loss":1,"lr":0.001,"tokens":0,"seconds":0,"val_loss":1.25}
}

func TestTrajectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trajectory.jsonl")
	w := resume[metrics.Point](t, path, 0)
	points := []metrics.Point{
		{Step: 0, X: metrics.Vector{0.1, -2, 1e-20}},
		{Step: 5, X: metrics.Vector{float32(math.NaN()), float32(math.Inf(1)), 3e38}},
		{Step: 9, X: metrics.Vector{}},
	}
	writeAll(t, w, points...)
	if err := w.Write(metrics.Point{Step: 8}); err == nil {
		t.Error("a point of an earlier step was written")
	}
	closeWriter(t, w)
	text := get(t, path)
	want := `{"step":0,"x":[0.1,-2,1e-20]}` + "\n" + `{"step":5,"x":["NaN","Inf",3e+38]}` + "\n" +
		`{"step":9,"x":[]}` + "\n"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
	got, err := metrics.Read[metrics.Point](vfs.At(path))
	if diff := cmp.Diff(points, got, cmpopts.EquateNaNs()); err != nil || diff != "" {
		t.Errorf("read back (-want +got), %v:\n%s", err, diff)
	}
}

// TestResumeTrajectory checks that Resume cuts off points of later steps and a torn line.
func TestResumeTrajectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trajectory.jsonl")
	lines := "{\"step\":0,\"x\":[1]}\n{\"step\":2,\"x\":[2]}\n{\"step\":4,\"x\":[3]}\n{\"step\":6,"
	for after, want := range map[int]int{-1: 0, 0: 1, 3: 2, 4: 3, 9: 3} {
		put(t, path, []byte(lines))
		w := resume[metrics.Point](t, path, after)
		writeAll(t, w, metrics.Point{Step: 10, X: metrics.Vector{4}})
		w.Close()
		if got, err := metrics.Read[metrics.Point](vfs.At(path)); err != nil || len(got) != want+1 {
			t.Errorf("after step %d: %d points (%v), want %d", after, len(got), err, want+1)
		}
	}
	put(t, path, []byte("{\"step\":0,\"x\":[true]}\n"))
	if _, err := metrics.Resume[metrics.Point](vfs.At(path), 3); err == nil {
		t.Error("a file with something else was resumed")
	}
}

// TestSamples checks that texts are read as they were written, except invalid UTF-8, and that
// Resume cuts off later steps and a torn line.
func TestSamples(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.jsonl")
	w := resume[metrics.Sample](t, path, 0)
	list := []metrics.Sample{
		{Step: 5, Texts: []metrics.Text{{Prompt: "func ", Text: "main() {\n\t\"λ\" }"},
			{Prompt: "a", Text: ""}}},
		{Step: 9, Texts: []metrics.Text{{Prompt: "b", Text: "x\xffy"}}},
	}
	writeAll(t, w, list...)
	closeWriter(t, w)
	list[1].Texts[0].Text = "x\ufffdy"
	got, err := metrics.Read[metrics.Sample](vfs.At(path))
	if diff := cmp.Diff(list, got); err != nil || diff != "" {
		t.Fatalf("read back (-want +got), %v:\n%s", err, diff)
	}
	text := get(t, path)
	put(t, path, append(text, `{"step":12,"te`...))
	if w, err = metrics.Resume[metrics.Sample](vfs.At(path), 8); err != nil {
		t.Fatal(err)
	}
	closeWriter(t, w)
	got, err = metrics.Read[metrics.Sample](vfs.At(path))
	if diff := cmp.Diff(list[:1], got); err != nil || diff != "" {
		t.Errorf("after resuming at step 8 (-want +got), %v:\n%s", err, diff)
	}
}

func FuzzSample(f *testing.F) {
	f.Add([]byte(`{"step":1,"texts":[{"prompt":"func ","text":"main()"}]}`))
	f.Add([]byte(`{"step":-1,"texts":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := metrics.ParseSample(line)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "not a sample: ") {
				t.Fatal(err)
			}
			return
		}
		path := vfs.At(filepath.Join(t.TempDir(), "samples.jsonl"))
		w, err := metrics.Resume[metrics.Sample](path, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(s); (err != nil) != (s.Step < 0) {
			t.Fatalf("writing step %d: %v", s.Step, err)
		}
		if err := w.Close(); err != nil || s.Step < 0 {
			return
		}
		got, err := metrics.Read[metrics.Sample](path)
		if diff := cmp.Diff([]metrics.Sample{s}, got); err != nil || diff != "" {
			t.Fatalf("read back (-want +got), %v:\n%s", err, diff)
		}
	})
}
