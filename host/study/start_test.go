package study_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// starting is a study whose cells start from the models of cells that come later in the file.
const starting = smallBase + `
parallel = 2
[[study.axes]]
name = "method"
values = [
  {label = "4 bits", init = {method = "QAT"}, set = {quantizer = {plugin = "quest", bits = 4}}},
  {label = "QAT", init = {method = "full"}, set = {quantizer = {plugin = "quest", bits = 8}}},
  {label = "RTN", init = {method = "full"}, quantize = {method = "rtn", of = "init"}, set = {quantizer = {plugin = "quest", bits = 4}}},
  {label = "full"},
]
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1]
`

// startTool is a script that trains, and records the model that it starts from, which must exist.
const startTool = `from=$(sed -n 's/^init = "\(.*\)"/\1/p' "$1"); [ -z "$from" ] || [ -f "$from/summary.json" ] || { echo "cage: nothing in $from"; exit 1; }
echo "$1 $from" >> order; ` + trainTool

func startTools() study.RunOptions {
	return study.RunOptions{Command: []string{"sh", "-c", startTool, "sh"}, Tool: standIns().Tool}
}

// TestStart checks that cells are trained after those that they start from, also if processes share
// the study or if one cell is selected, and that their hashes depend on those cells.
func TestStart(t *testing.T) {
	for name, o := range map[string]study.RunOptions{"alone": {}, "shared": {Share: true},
		"one cell": {Share: true, Only: map[string][]string{"method": {"4 bits"}, "seed": {"0"}}}} {
		t.Run(name, func(t *testing.T) {
			s := quantizes(t, starting)
			o.Command, o.Tool = startTools().Command, startTools().Tool
			want := 8
			if o.Only != nil {
				want = 3
			}
			if out, err := run(t, s, o); err != nil || out.Done != want || out.Failed > 0 {
				t.Fatalf("%+v, %v", out, err)
			}
			text, err := os.ReadFile("order")
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Fields(string(text))
			for _, c := range s.Cells {
				if c.Labels["method"] == "QAT" && !slices.Contains(lines, c.Config.Init) {
					if o.Only == nil || c.Labels["seed"] == "0" {
						t.Errorf("%s starts from %s:\n%s", c.ID, c.Config.Init, text)
					}
				}
			}
		})
	}
	before := quantizes(t, starting)
	after := quantizes(t,
		strings.Replace(starting, `{label = "full"}`, `{label = "full", set = {train.steps = 2}}`, 1))
	for i, c := range before.Cells {
		if c.Hash == after.Cells[i].Hash {
			t.Errorf("%s is the same cell whatever it starts from", c.ID)
		}
	}
}

// TestStartStale checks that if a model is to be trained again, the cells that start from it, even
// indirectly, are stale, and that a cell whose source fails also fails.
func TestStartStale(t *testing.T) {
	testlevel.Long(t, "runs several studies")
	s := quantizes(t, starting)
	if _, err := run(t, s, startTools()); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells {
		if c.Labels["method"] == "full" && c.Labels["seed"] == "1" {
			if err := os.RemoveAll(c.Dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	plan, err := s.Plan(t.Context(), startTools())
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, r := range plan.Results {
		states = append(states, string(r.State))
	}
	want := []string{"done", "stale", "done", "stale", "done", "stale", "done", "missing"}
	if !slices.Equal(states, want) {
		t.Errorf("the states are %v, want %v", states, want)
	}

	s = quantizes(t, starting)
	o := startTools()
	o.Command = []string{"sh", "-c", `case "$1" in *full-0*) echo "cage: no luck"; exit 1;; esac; ` +
		startTool, "sh"}
	out, err := run(t, s, o)
	if err != nil || out.Failed != 4 || out.Done != 4 {
		t.Errorf("%+v, %v", out, err)
	}
	for _, r := range results(t, s) {
		if r.Cell.Labels["seed"] == "0" && r.Cell.Labels["method"] != "full" &&
			!strings.Contains(r.Err, "is not trained: ") {
			t.Errorf("%s: %s", r.Cell.ID, r.Err)
		}
	}
}

// TestStartQuantized checks that cells can start from models that other cells quantize.
func TestStartQuantized(t *testing.T) {
	s := quantizes(t, strings.Replace(starting, `init = {method = "QAT"}`, `init = {method = "RTN"}`, 1))
	if out, err := run(t, s, startTools()); err != nil || out.Done != 8 {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, c := range s.Cells[:2] {
		from := s.Cells[slices.IndexFunc(s.Cells, func(o study.Cell) bool {
			return o.Labels["method"] == "RTN" && o.Labels["seed"] == c.Labels["seed"]
		})]
		if c.Config.Init != from.Run || filepath.Base(from.Run) != rundir.StudyModel {
			t.Errorf("%s starts from %s, want the model in %s", c.ID, c.Config.Init, from.Run)
		}
	}
}

// TestStartMistakes covers sources that do not exist or are quantized twice, cells that start from
// each other, and models of other sizes.
func TestStartMistakes(t *testing.T) {
	for change, want := range map[string]string{
		`init = {method = "full"}>init = {method = "fool"}`:  `the axis "method" has no label "fool"; it has`,
		`init = {method = "full"}>init = {methods = "full"}`: `there is no axis "methods"; did you mean "method"?`,
		`init = {method = "QAT"}>init = {method = "RTN"}, ` +
			`quantize = {method = "rtn", of = "init"}`: "the cell in init is quantized already (cell 4 bits",
		`init = {method = "full"}>init = {method = "4 bits"}`:         `the cell starts from a model that starts from its own`,
		`init = {method = "full"}>init = {}`:                          `the cell starts from a model that starts from its own`,
		`{label = "full"}>{label = "full", set = {model.width = 64}}`: `model.width: found the integer 32, but the model in the cell full · 0 has 64`,
		"[[study.axes]]\nname = \"seed\">[[study.exclude]]\nmethod = \"full\"\n[[study.axes]]\nname = " +
			"\"seed\"": "no cell has these labels",
	} {
		old, new, _ := strings.Cut(change, ">")
		t.Chdir(t.TempDir())
		_, err := study.Parse(filepath.Join(t.TempDir(), "q.toml"),
			[]byte(strings.Replace(starting, old, new, 1)))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(want, "axis") &&
			strings.Contains(err.Error(), "no cell") {
			t.Errorf("%s: got %v, want %q", change, err, want)
		}
	}
}
