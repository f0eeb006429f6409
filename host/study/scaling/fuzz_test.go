package scaling

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/rundir"
)

// FuzzReadRuns checks that any files of a run give a valid point, a reason for skipping the run, or
// an error that names it.
func FuzzReadRuns(f *testing.F) {
	dir := f.TempDir()
	at := rundir.At(filepath.Join(dir, "a"))
	for _, seed := range []struct{ config, parameters, summary string }{
		{"", "", summaryText(1000, 3)},
		{quest + off, `{"bits": 4, "form": "paper"}`, summaryText(1000, 3.25)},
		{weights, `{"bits": "NaN"}`, `{"completed": true, "tokens": -1, "val_loss": "Inf"}`},
	} {
		writeRun(f, at.Name, seed.config, seed.parameters, seed.summary)
		var files [][]byte
		for _, name := range []string{rundir.ConfigFile, rundir.ProvenanceFile, rundir.SummaryFile} {
			text, err := os.ReadFile(at.Join(name).Name)
			if err != nil {
				f.Fatal(err)
			}
			files = append(files, text)
		}
		f.Add(files[0], files[1], files[2])
	}
	f.Fuzz(func(t *testing.T, config, provenance, summary []byte) {
		for name, text := range map[string][]byte{rundir.ConfigFile: config,
			rundir.ProvenanceFile: provenance, rundir.SummaryFile: summary} {
			if err := os.WriteFile(at.Join(name).Name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		points, left, err := ReadRuns(dir, Labels{})
		if err != nil {
			if !strings.Contains(err.Error(), "a") {
				t.Fatalf("no run in %v", err)
			}
			return
		}
		if len(points)+len(left) != 1 {
			t.Fatalf("one run gives %v and %v", points, left)
		}
		for _, p := range points {
			if wrong := p.check(); wrong != "" {
				t.Fatalf("%+v: %s", p, wrong)
			}
		}
		for _, l := range left {
			if l.Reason == "" {
				t.Fatal("left out without a reason")
			}
		}
	})
}
