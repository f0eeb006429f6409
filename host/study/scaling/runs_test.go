package scaling

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/train/rundir"
)

// writeRun writes the files of a run directory that matter here, as training leaves them.
func writeRun(t testing.TB, dir, config, parameters, summary string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const base = `model = {layers = 1, width = 16, heads = 2, context = 16, vocab = 256}
data = {train = "t.tokens", validation = "v.tokens"}
train = {steps = 6, batch = 2}
schedule = {rate = 1e-2}
`
	plugins := "[]"
	if parameters != "" {
		plugins = `[{"table": "optimizer", "parameters": {"bits": 3}}, {"table": "quantizer.weights", "parameters": ` + parameters + `}]`
	}
	for name, text := range map[string]string{rundir.ConfigFile: base + config,
		rundir.ProvenanceFile: `{"plugins": ` + plugins + `}`, rundir.SummaryFile: summary} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func summaryText(n int, loss float64) string {
	return fmt.Sprintf(`{"completed": true, "tokens": %d, "parameters": %d, "non_embedding_parameters": %d, "val_loss": %v}`, 100*n, 2*n, n, loss)
}

const (
	quest   = "[quantizer]\nplugin = \"quest\"\n"
	off     = "[method]\nform = \"off\"\n"
	weights = "[quantizer.weights]\nplugin = \"./mine/odd\"\n"
)

func TestReadRuns(t *testing.T) {
	dir := t.TempDir()
	run := func(name string) string { return filepath.Join(dir, "cells", name) }
	writeRun(t, run("a"), "", "", summaryText(1000, 3))
	writeRun(t, run("b"), quest+off, `{"bits": 4, "form": "paper", "rotation": "auto"}`,
		summaryText(1000, 3.25))
	writeRun(t, run("c"), quest, `{"bits": 2, "form": "paper", "rotation": "none"}`,
		summaryText(1000, 3.5))
	writeRun(t, run("d"), quest, `{"bits": 4, "form": "ternary"}`, summaryText(1000, 3.75))
	writeRun(t, run("e"), weights+"[method]\nname = \"lotion\"\n", `{"levels": 7}`,
		summaryText(1000, 4))
	writeRun(t, run("f"), quest, `{"bits": 4}`, "")
	writeRun(t, run("g"), quest, `{"bits": 4}`, `{"completed": false, "tokens": 5}`)
	writeRun(t, run("h"), quest, `{"bits": 4}`, `{"completed": true, "tokens": 5}`)

	if _, _, err := ReadRuns(dir, Labels{}); err == nil ||
		err.Error() != run("e")+": the quantizer odd has no parameter bits: give the bits per weight "+
			"with --bits odd=4" {
		t.Errorf("error %v", err)
	}
	points, unfinished, err := ReadRuns(dir, Labels{Bits: map[string]float64{"odd": 2.8}})
	if err != nil {
		t.Fatal(err)
	}
	point := func(name, method string, bits, loss float64) Point {
		return Point{Group: Group{method, bits}, N: 1000, D: 100000, Loss: loss, Source: run(name)}
	}
	want := []Point{
		point("a", "full precision", 16, 3), point("b", "quest", 4, 3.25),
		point("c", "quest + CAGE", 2, 3.5),
		point("d", "quest + CAGE", math.Log2(3), 3.75), point("e", "odd (weights only) + LOTION", 2.8, 4),
	}
	if diff := cmp.Diff(want, points); diff != "" {
		t.Error(diff)
	}
	left := []SkippedRun{{run("f"), "its training has not ended yet", false},
		{run("g"), "its training was stopped", false}, {run("h"), "it has no validation loss", false}}
	if diff := cmp.Diff(left, unfinished); diff != "" {
		t.Error(diff)
	}

	// A directory may be a link.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(run("b"), link); err != nil {
		t.Fatal(err)
	}
	if points, _, err = ReadRuns(link, Labels{}); err != nil || len(points) != 1 {
		t.Errorf("%+v, %v", points, err)
	}

	// Names can be made from keys of the configuration and from parameters of the quantizer.
	points, _, err = ReadRuns(run("b"),
		Labels{Keys: []string{"quantizer.rotation", "method.form", "quantizer.plugin"}})
	if err != nil || len(points) != 1 || points[0].Method != "auto, off, quest" {
		t.Errorf("%+v, %v", points, err)
	}
	if _, _, err := ReadRuns(run("b"), Labels{Keys: []string{"methd.form"}}); err == nil ||
		!strings.HasSuffix(err.Error(), "has none of the keys methd.form") {
		t.Errorf("error %v", err)
	}
}

func TestReadRunsSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := ReadRuns(dir, Labels{}); err == nil ||
		err.Error() != dir+": no run directories in it: none has a run.toml" {
		t.Errorf("error %v", err)
	}
	none := filepath.Join(dir, "none")
	if _, _, err := ReadRuns(none, Labels{}); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), none) {
		t.Errorf("error %v", err)
	}
	writeRun(t, dir, "", "",
		`{"completed": true, "tokens": 0, "val_loss": 1, "non_embedding_parameters": 5}`)
	if points, left, err := ReadRuns(dir, Labels{}); err != nil || len(points) > 0 || len(left) != 1 ||
		!strings.Contains(left[0].Reason, "it cannot be a point: d is 0") {
		t.Errorf("points %v, left out %v, error %v", points, left, err)
	}
}

// TestReadRunsLeavesOutWhatIsDamaged checks that the other runs are read if some are damaged.
func TestReadRunsLeavesOutWhatIsDamaged(t *testing.T) {
	dir := t.TempDir()
	writeRun(t, filepath.Join(dir, "a"), "", "", summaryText(10, 1))
	writeRun(t, filepath.Join(dir, "b"), "surprise = 1\n", "", summaryText(10, 1))
	writeRun(t, filepath.Join(dir, "c"), "", "", "{")
	writeRun(t, filepath.Join(dir, "d"), "", "{", summaryText(10, 1))
	points, left, err := ReadRuns(dir, Labels{})
	if err != nil || len(points) != 1 || len(left) != 3 {
		t.Fatalf("%+v, %+v, %v", points, left, err)
	}
	for i, word := range []string{"surprise", rundir.SummaryFile, rundir.ProvenanceFile} {
		if l := left[i]; !l.Damaged || !strings.Contains(l.Reason, word) {
			t.Errorf("%+v, want %s named", l, word)
		}
	}
}

// TestStaleRuns checks that runs that a study has put aside as stale give no points.
func TestStaleRuns(t *testing.T) {
	dir := t.TempDir()
	writeRun(t, filepath.Join(dir, rundir.StudyCells, "a-0"), "", "", summaryText(1000, 3))
	writeRun(t, filepath.Join(dir, rundir.StudyStale, "a-0-1"), "", "", summaryText(1000, 9))
	if err := os.WriteFile(filepath.Join(dir, rundir.StudyFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if points, left, err := ReadRuns(dir, Labels{}); err != nil || len(points) != 1 {
		t.Errorf("%d points %v, left out %v, %v", len(points), points, left, err)
	}
}

// TestNotPretrained checks that a run that was quantized after training, or that started from
// another model, gives no point, even if it has a loss.
func TestNotPretrained(t *testing.T) {
	for record, want := range map[string]string{
		`"initial": {"run": "A"}, "posttrained": {}`: "it was quantized after its training",
		`"initial": {"run": "A"}`:                    "it started from another trained model",
	} {
		dir := t.TempDir()
		writeRun(t, dir, "", "", summaryText(1000, 3))
		if err := os.WriteFile(filepath.Join(dir, rundir.ProvenanceFile),
			[]byte(`{"plugins": [], `+record+`}`), 0o644); err != nil {
			t.Fatal(err)
		}
		points, left, err := ReadRuns(dir, Labels{})
		if err != nil || len(points) > 0 || len(left) != 1 || left[0].Reason != want {
			t.Errorf("%s: %v, %v, %v", record, points, left, err)
		}
	}
}
