package study_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/internal/testing/crashfs"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// trainer is a shell script that replaces cage train: it immediately writes the files that a
// training leaves. With the argument --fail, trainings with seed 1 fail.
const trainer = `
dir=$(dirname "$1")
if [ "$2" = --fail ] && grep -q '^seed = 1$' "$1"; then
	echo "cage: out of luck" >&2
	exit 1
fi
cp "$1" "$dir/run.toml"
echo '{"step": 1, "loss": 2}' > "$dir/metrics.jsonl"
echo '{"completed": true, "steps": 1, "val_loss": 2}' > "$dir/.summary"
mv "$dir/.summary" "$dir/summary.json"
`

// attempted is a test case: a study whose trainings take no time, so that faults hit the study's
// own files.
type attempted struct {
	name   string
	before bool // a cell failed in an earlier call, and is retried in this one
	fails  bool // a cell fails in this call
}

const twoCells = `
[base]
model = {kind = "toy"}
train = {steps = 1}
schedule = {rate = 0.1}
optimizer = {plugin = "sgd"}
[study]
out = %q
parallel = 1
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1]
`

func (a attempted) load(t *testing.T, out string) *study.Study {
	t.Helper()
	s, err := study.Parse("faults.toml", fmt.Appendf(nil, twoCells, out))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs the study in a directory. It returns all error messages, and the number of failed cells.
func (a attempted) run(
	t *testing.T, files vfs.FS, out string, fails, retry bool,
) (said string, failed int) {
	t.Helper()
	s := a.load(t, out)
	s.Files = files
	// The study appends arguments to the command. The first one is the path of the configuration.
	script := trainer
	if fails {
		script = "set -- \"$1\" --fail\n" + trainer
	}
	outcome, err := study.Run(t.Context(), s, study.RunOptions{
		Command: []string{"sh", "-c", script, "sh"}, Retry: retry,
		Watch: func(p console.Progress) {
			if p.Ended != nil {
				said += p.Ended.Err
			}
		},
	})
	if err != nil {
		said += err.Error()
	}
	results, err := s.Results()
	if err != nil {
		said += err.Error()
	}
	for _, r := range results {
		said += "\n" + r.Err
	}
	return said, outcome.Failed
}

func (a attempted) begin(t *testing.T) (root, out string) {
	t.Helper()
	root = t.TempDir()
	out = filepath.Join(root, "studies", "two")
	if a.before {
		if _, failed := a.run(t, nil, out, true, false); failed != 1 {
			t.Fatalf("%d cells failed, want one", failed)
		}
	}
	return root, out
}

var place = regexp.MustCompile(`(?m)^out = .*$`)

// files returns the contents of the files in a study's directory by name, without absolute paths.
// Files that depend on the number of attempts count as empty.
func (a attempted) files(t *testing.T, out string) map[string]string {
	t.Helper()
	list := map[string]string{}
	err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name := strings.TrimPrefix(path, out)
		if strings.HasSuffix(name, "train.log") || strings.HasSuffix(name, "failed.json") ||
			strings.HasPrefix(name, "/.claims/") {
			text = nil // depends on the number of attempts
		}
		list[name] = string(place.ReplaceAll(text, nil))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// again runs the study without faults, and checks that its files equal those of an undisturbed run.
func (a attempted) again(t *testing.T, what, out string, want map[string]string) {
	t.Helper()
	if said, failed := a.run(t, nil, out, a.fails, true); strings.TrimSpace(said) != "" && !a.fails ||
		failed > 0 != a.fails {
		t.Errorf("%s: the study cannot go on: %s", what, said)
		return
	}
	if diff := cmp.Diff(want, a.files(t, out)); diff != "" {
		t.Errorf("%s: the files differ:\n%s", what, diff)
	}
}

func studiesOfFaults() []attempted {
	return []attempted{{name: "new"}, {name: "failing", fails: true},
		{name: "tried again", before: true}}
}

// TestFaults checks that if any operation on a study's own files fails, alone or with all later
// ones, the fault is reported, and the next call ends like an undisturbed one.
func TestFaults(t *testing.T) {
	every := testlevel.Sample(120, 10, 1)
	for _, a := range studiesOfFaults() {
		_, reference := a.begin(t)
		a.run(t, nil, reference, a.fails, true)
		want := a.files(t, reference)
		expected := map[bool]int{true: 1}[a.fails]
		for files := range faultfs.Each(t, every, 70) {
			_, out := a.begin(t)
			said, failed := a.run(t, files, out, a.fails, a.before)
			fired := files.Fired()
			if len(fired) == 0 {
				continue
			}
			what := a.name + ": " + files.What()
			if !strings.Contains(said, "injected fault") && failed == expected && !a.unread(fired[0]) {
				t.Errorf("%s: nobody reports it: %s", what, said)
			}
			a.again(t, what, out, want)
		}
	}
}

// unread reports whether a fault of an operation may go unreported.
func (a attempted) unread(op faultfs.Op) bool {
	switch filepath.Base(op.Path) {
	case "metrics.jsonl":
		return true // read only for the display
	case "train.log":
		return op.Kind == faultfs.Close // the study itself writes nothing to it
	case "summary.json", "failed.json", "cell.toml", "checksums.json":
		// A cell that cannot be read counts as failed. If the cell is retried, or fails anyway, the fault
		// is not visible.
		reads := []faultfs.Kind{faultfs.Open, faultfs.Read, faultfs.Close, faultfs.Stat}
		return (a.before || a.fails) && slices.Contains(reads, op.Kind) &&
			!strings.Contains(op.Path, "/.")
	}
	return false
}

// TestPowerLoss checks that after a power failure at any moment, the next call ends like an
// undisturbed one. Of the trainings' files, only those from earlier calls survive.
func TestPowerLoss(t *testing.T) {
	testlevel.Long(t, "runs a study for each moment of a loss of power")
	for _, a := range studiesOfFaults() {
		root, out := a.begin(t)
		files, err := crashfs.New(root)
		if err != nil {
			t.Fatal(err)
		}
		a.run(t, files, out, a.fails, true)
		want := a.files(t, out)
		for lost, what := range files.Each(t, uint64(testlevel.Choose(1, 6)), 1) {
			a.again(t, a.name+": "+what, filepath.Join(lost, "studies", "two"), want)
		}
	}
}
