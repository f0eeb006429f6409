package kept_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/kept"
)

// TestRelabelled: a cell is known by its configuration: another label, or one more axis, changes nothing.
func TestRelabelled(t *testing.T) {
	s := load(t)
	f := again(t, take(t, s, done(t, s, "1", 0, 1, 2, 3), nil, "r1"))
	t.Chdir(t.TempDir()) // another machine: no directories of cells
	for name, text := range map[string]string{
		"another label": strings.Replace(studyFile, `values = [0, 1]`, `values = [{label = "first", value = 0}, {label = "second", value = 1}]`, 1),
		"one more axis": studyFile + "[[study.axes]]\nname = \"rate\"\nkey = \"schedule.rate\"\nvalues = [0.1, 0.2]\n",
	} {
		write(t, "small.toml", text)
		now, err := study.Load("small.toml")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range f.Results(now) {
			if r.State == study.Done {
				n++
			}
		}
		if n != 4 || len(f.Unknown(now)) != 0 {
			t.Errorf("%s: %d of 4 kept cells are found, unknown %v", name, n, f.Unknown(now))
		}
		if g := take(t, now, done(t, now, "1"), f, "r2"); len(g.Cells) != 4 {
			t.Errorf("%s: 'keep' retains %d of 4 cells", name, len(g.Cells))
		}
	}
}

// TestSameResults: results that nobody trained again keep the revision that they were taken over with.
func TestSameResults(t *testing.T) {
	s := load(t)
	first := take(t, s, done(t, s, "1", 0, 1), nil, "r1")
	second := take(t, s, done(t, s, "1", 0, 1, 2), first, "r2")
	for _, c := range second.Cells[:2] {
		if got := second.Sources[c.Source].Revision; got != "r1" {
			t.Errorf("%s, trained before r2, is said to be of %s", c.ID, got)
		}
	}
}

// TestNoPrograms: a run of which nobody knows what it was made with is not kept.
func TestNoPrograms(t *testing.T) {
	s := load(t)
	results := done(t, s, "1", 0)
	write(t, filepath.Join(s.Cells[0].Run, "provenance.json"), "{}")
	if f, err := kept.Take(s, results, nil, "r1", day); err == nil {
		t.Errorf("kept, though nobody knows what it was made with: %+v %+v", f.Cells, f.Sources)
	}
}

// TestBuilds: results of two builds that are taken over at once have two sources.
func TestBuilds(t *testing.T) {
	s := load(t)
	results := done(t, s, "1", 0, 1, 2, 3)
	for _, i := range []int{1, 3} {
		path := filepath.Join(s.Cells[i].Run, "provenance.json")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, strings.Replace(string(text), `"device": "cpu"`, `"device": "cuda"`, 1))
	}
	f := again(t, take(t, s, results, nil, "r1"))
	for i, device := range []string{"cpu", "cuda", "cpu", "cuda"} {
		if builds := f.Sources[f.Cells[i].Source].Builds; len(builds) != 1 || builds[0].Device != device {
			t.Errorf("%s was trained on %s, and is said to be of %+v", f.Cells[i].ID, device, builds)
		}
	}
	if len(f.Sources) != 2 {
		t.Errorf("%d sources, want 2", len(f.Sources))
	}
}
