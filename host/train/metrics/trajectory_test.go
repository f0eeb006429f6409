package metrics_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

func TestTrajectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trajectory.jsonl")
	w, err := metrics.Resume[metrics.Point](vfs.At(path), 0)
	if err != nil {
		t.Fatal(err)
	}
	points := []metrics.Point{
		{Step: 0, X: metrics.Vector{0.1, -2, 1e-20}}, {Step: 5, X: metrics.Vector{float32(math.NaN()), float32(math.Inf(1)), 3e38}}, {Step: 9, X: metrics.Vector{}},
	}
	for _, p := range points {
		if err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Write(metrics.Point{Step: 8}); err == nil {
		t.Error("a point of an earlier step was written")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"step":0,"x":[0.1,-2,1e-20]}` + "\n" + `{"step":5,"x":["NaN","Inf",3e+38]}` + "\n" + `{"step":9,"x":[]}` + "\n"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
	got, err := metrics.Read[metrics.Point](vfs.At(path))
	if diff := cmp.Diff(points, got, cmpopts.EquateNaNs()); err != nil || diff != "" {
		t.Errorf("read back (-want +got), %v:\n%s", err, diff)
	}
}

// TestResumeTrajectory: points of later steps and a torn line are cut off.
func TestResumeTrajectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trajectory.jsonl")
	lines := "{\"step\":0,\"x\":[1]}\n{\"step\":2,\"x\":[2]}\n{\"step\":4,\"x\":[3]}\n{\"step\":6,"
	for after, want := range map[int]int{-1: 0, 0: 1, 3: 2, 4: 3, 9: 3} {
		if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
		w, err := metrics.Resume[metrics.Point](vfs.At(path), after)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(metrics.Point{Step: 10, X: metrics.Vector{4}}); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if got, err := metrics.Read[metrics.Point](vfs.At(path)); err != nil || len(got) != want+1 {
			t.Errorf("after step %d: %d points (%v), want %d", after, len(got), err, want+1)
		}
	}
	if err := os.WriteFile(path, []byte("{\"step\":0,\"x\":[true]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := metrics.Resume[metrics.Point](vfs.At(path), 3); err == nil {
		t.Error("a file with something else was resumed")
	}
}
