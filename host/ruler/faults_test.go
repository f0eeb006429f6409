package ruler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/internal/vfs/crashfs"
	"github.com/cage-qat/cage/internal/vfs/faultfs"
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

// tree are the files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		below, err := filepath.Rel(dir, name)
		out[below] = content(t, vfs.At(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// again demands that the same measurement in a directory ends in the same files.
func again(t *testing.T, what, dir string, want map[string]string) {
	t.Helper()
	if err := measure(vfs.OS, dir); err != nil {
		t.Errorf("%s: it cannot go on: %v", what, err)
		return
	}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
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
	want := tree(t, reference)
	for _, forever := range []bool{false, true} {
		i := 0
		for ; ; i++ {
			dir := filepath.Join(t.TempDir(), "out")
			files := faultfs.New(vfs.OS, i, forever)
			err := measure(files, dir)
			if len(files.Fired()) == 0 {
				break
			}
			what := fmt.Sprintf("%s failed, forever %v", files.Fired()[0], forever)
			if !strings.Contains(fmt.Sprint(err), "injected fault") {
				t.Errorf("%s: nobody reports it: %v", what, err)
			}
			again(t, what, dir, want)
		}
		if i < 50 {
			t.Errorf("only %d operations were made to fail", i)
		}
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
	want := tree(t, dir)
	for m := range files.Moments() + 1 {
		for seed := range uint64(faultfs.Sweep(2, 12)) {
			lost := t.TempDir()
			if err := files.Lose(m, seed, lost); err != nil {
				t.Fatal(err)
			}
			again(t, fmt.Sprintf("power lost at moment %d, seed %d", m, seed), filepath.Join(lost, "out"), want)
		}
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
