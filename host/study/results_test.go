package study

import (
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/train/metrics"
)

// TestDivergedIsKnown: of a failed cell it is told whether its training diverged, which is a result, or ended otherwise.
func TestDivergedIsKnown(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "base.toml"), base)
	s, err := Parse(filepath.Join(dir, "study.toml"), []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	s.Out = filepath.Join(dir, "out")
	c := s.Cells[0]
	c.Dir, c.Run = filepath.Join(s.Out, "cells", "a"), filepath.Join(s.Out, "cells", "a")
	for stopped, known := range map[metrics.Stop]bool{metrics.Diverged: true, metrics.Failed: false} {
		write(t, filepath.Join(c.Dir, failedFile), `{"error": "why"}`)
		if err := metrics.WriteSummary(s.run(c).Summary(), metrics.Summary{Stopped: stopped}); err != nil {
			t.Fatal(err)
		}
		if r := s.readCellResult(c, false); r.State != Failed || r.Err != "why" || r.Diverged != known || r.Known() != known || r.Trained() {
			t.Errorf("%s: %+v", stopped, r)
		}
	}
}
