package study_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study"
)

// damages are changes of a file. They return nil to remove it.
var damages = map[string]func([]byte) []byte{
	"removed":             func([]byte) []byte { return nil },
	"emptied":             func([]byte) []byte { return []byte{} },
	"cut at a third":      func(b []byte) []byte { return b[:len(b)/3] },
	"cut at a line":       func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] },
	"without the newline": func(b []byte) []byte { return b[:len(b)-1] },
	"without a line":      func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] },
	"with another digit": func(b []byte) []byte {
		return bytes.ReplaceAll(b, []byte("2"), []byte("3"))
	},
	"zeros": func(b []byte) []byte { return make([]byte, len(b)) },
}

// TestChecksums checks for each file of a finished cell from which results and reports are made,
// and for several damages of it, that the cell is not done, that a retry makes it again, and that
// the others stay.
func TestChecksums(t *testing.T) {
	const records = `
for f in metrics trajectory; do
	echo '{"step": 1, "loss": 2.5, "x": [2]}' > "$dir/$f.jsonl"
	echo '{"step": 2, "loss": 2.25, "x": [2]}' >> "$dir/$f.jsonl"
done
printf '{\n"run": "1234"}\n' > "$dir/provenance.json"`
	o := standIns()
	o.Command[2] = strings.Replace(trainTool, "cp ", records[1:]+"; cp ", 1)
	s := quantizes(t, quantizing)
	if out, err := run(t, s, o); err != nil || out.Done != 3 {
		t.Fatalf("%+v, %v", out, err)
	}
	before := results(t, s)
	evaluations, err := filepath.Glob(filepath.Join(s.Cells[1].Dir, "evaluations/*/evaluation.json"))
	if err != nil || len(evaluations) != 1 {
		t.Fatalf("%v, %v", evaluations, err)
	}
	type file struct {
		cell int
		path string
	}
	files := []file{{1, evaluations[0]}, {1, filepath.Join(s.Cells[1].Run, "summary.json")}}
	for _, name := range []string{"summary.json", "metrics.jsonl", "trajectory.jsonl",
		"provenance.json"} {
		files = append(files, file{0, filepath.Join(s.Cells[0].Dir, name)})
	}
	tried := 0
	for _, f := range files {
		for name, damage := range damages {
			what := fmt.Sprintf("%s %s", filepath.Base(f.path), name)
			was, err := os.ReadFile(f.path)
			now := damage(was)
			switch {
			case bytes.Equal(now, was): // it has one line, or no such digit
				continue
			case name == "without the newline" && f.path == evaluations[0]:
				continue // it has a checksum of what it says
			case err == nil && now == nil:
				err = os.Remove(f.path)
			case err == nil:
				err = os.WriteFile(f.path, now, 0o644)
			}
			tried++
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range results(t, s) {
				ends := r.State == study.Interrupted || r.State == study.Unevaluated ||
					r.State == study.Failed && r.Unreadable && strings.Contains(r.Err, f.path)
				if i == f.cell && !ends || i != f.cell && r.State != study.Done {
					t.Errorf("%s: cell %d is %s: %s", what, i, r.State, r.Err)
				}
			}
			again := o
			again.Retry = true
			if out, err := run(t, s, again); err != nil || out.Done != 3 || out.Trained != 1 {
				t.Errorf("%s: %+v, %v", what, out, err)
			}
			for i, r := range results(t, s) {
				if diff := cmp.Diff(before[i].Summary, r.Summary); diff != "" || r.State != study.Done {
					t.Errorf("%s: cell %d is %s: %s\n%s", what, i, r.State, r.Err, diff)
				}
			}
			if now, err := os.ReadFile(f.path); err != nil || !bytes.Equal(now, was) {
				t.Fatalf("%s: after a retry it is\n%s, was\n%s (%v)", what, now, was, err)
			}
		}
	}
	if tried < 40 {
		t.Errorf("only %d damages", tried)
	}
}
