package study_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
)

// TestCellsOnGPUs: the processes of cells that run at once see different GPUs.
func TestCellsOnGPUs(t *testing.T) {
	s := tiny(t, "", `device.kind="cuda"`)
	t.Setenv("CUDA_VISIBLE_DEVICES", "6,3")
	// Each waits for the other one, and so runs beside it.
	script := `d="$(dirname "$0")"; echo "$CUDA_VISIBLE_DEVICES" > "$d/gpu"
while [ "$(cat "$d"/../*/gpu | wc -l)" -lt 2 ]; do sleep 0.01; done
echo '{"completed": true, "val_loss": 1}' > "$d/summary.json"`
	out, err := run(t, s, study.RunOptions{Command: []string{"sh", "-c", script}, Parallel: 2, Only: map[string][]string{"seed": {"0"}}})
	if want := (study.Outcome{Cells: 2, Done: 2, Trained: 2}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	files, err := filepath.Glob(filepath.Join(s.Out, "cells", "*", "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, strings.TrimSpace(string(text)))
	}
	slices.Sort(seen)
	if fmt.Sprint(seen) != "[3 6]" {
		t.Errorf("the cells saw the GPUs %v", seen)
	}
}
