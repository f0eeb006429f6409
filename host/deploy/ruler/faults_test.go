package ruler

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/internal/vfs/crashfs"
	"github.com/cage-qat/cage/internal/vfs/faultfs"
	"github.com/cage-qat/cage/internal/vfs/vfstest"
)

// measure makes prompts and lets the model answer them.
func measure(files vfs.FS, dir string) error {
	tasks, err := Select([]string{"fwe"})
	if err != nil {
		return err
	}
	d := At(vfs.On(files, dir))
	g := &Generator{Count: countWords, Seed: DefaultSeed}
	p, err := g.Write(context.Background(), d, Plan{Tasks: tasks, Lengths: []int{300}, Samples: 3})
	if err != nil {
		return err
	}
	asked := 0
	return d.Ask(context.Background(), p, echo(&asked), 2)
}

// again demands that the same measurement in a directory ends in the same files.
func again(t *testing.T, what, dir string, want map[string]string) {
	t.Helper()
	if err := measure(vfs.OS, dir); err != nil {
		t.Errorf("%s: it cannot go on: %v", what, err)
		return
	}
	if diff := cmp.Diff(want, vfstest.Contents(t, dir)); diff != "" {
		t.Errorf("%s: the files differ:\n%s", what, diff)
	}
}

// TestFaults: whichever operation on files fails, once or with all after it, it is
// reported, and the same measurement again ends as one that nothing disturbed.
func TestFaults(t *testing.T) {
	reference := t.TempDir()
	if err := measure(vfs.OS, reference); err != nil {
		t.Fatal(err)
	}
	want := vfstest.Contents(t, reference)
	every := effort.Sample(5, 1, 1)
	for files := range faultfs.Each(t, every, 50) {
		dir := filepath.Join(t.TempDir(), "out")
		err := measure(files, dir)
		again(t, files.Reported(t, err), dir, want)
	}
}

// TestPowerLoss: at whatever moment the power fails, the same measurement ends in the same
// files.
func TestPowerLoss(t *testing.T) {
	root := t.TempDir()
	files, err := crashfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "out")
	if err := measure(files, dir); err != nil {
		t.Fatal(err)
	}
	want := vfstest.Contents(t, dir)
	for lost, what := range files.Each(t, uint64(effort.Choose(2, 12)), 50) {
		again(t, what, filepath.Join(lost, "out"), want)
	}
}

// TestLocked: a second process is sent away.
func TestLocked(t *testing.T) {
	d, p := plan(t, 2)
	lock, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	err = d.Ask(context.Background(), p, echo(&asked), 1)
	if err == nil || !strings.Contains(err.Error(), "another process is working on it") {
		t.Errorf("the error is %v", err)
	}
	if err := errors.Join(lock.Unlock(), d.Ask(context.Background(), p, echo(&asked), 1)); err != nil {
		t.Error(err)
	}
}
