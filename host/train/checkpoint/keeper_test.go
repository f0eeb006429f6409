package checkpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/vfs"
)

// told collects the names of damaged checkpoints that a keeper reports.
type told []string

func (t *told) add(path vfs.Path, err error) {
	if !errors.Is(err, checkpoint.ErrDamaged) {
		path.Name += " for " + err.Error()
	}
	*t = append(*t, path.Base())
}

// TestPruneCountsIntactOnly checks that the only intact checkpoint stays although newer ones are
// damaged, and that these are renamed and reported.
func TestPruneCountsIntactOnly(t *testing.T) {
	for _, how := range []string{"bit in the data", "bit in the metadata", "no digest", "cut", "empty",
		"other step"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			for step := 1; step <= 4; step++ {
				save(t, dir, state(t, step, float32(step), 5))
			}
			damage(t, dir, 3, how)
			damage(t, dir, 4, how)
			var list told
			if err := checkpoint.NewKeeper(vfs.At(dir), 1, list.add).Prune(); err != nil {
				t.Fatal(err)
			}
			if got := steps(t, dir); !slices.Equal(got, []int{2}) {
				t.Errorf("steps %v are left, want 2", got)
			}
			want := told{checkpoint.FileName(4) + checkpoint.DamagedSuffix, checkpoint.FileName(3) +
				checkpoint.DamagedSuffix}
			if !slices.Equal(list, want) {
				t.Errorf("told of %v, want %v", list, want)
			}
			for _, name := range want {
				if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestPruneFindsDamageOfItsOwn checks that a checkpoint that this keeper wrote is not kept if it
// was damaged afterwards.
func TestPruneFindsDamageOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	var list told
	k := checkpoint.NewKeeper(vfs.At(dir), 2, list.add)
	for step := 1; step <= 3; step++ {
		if err := k.Save(context.Background(), state(t, step, float32(step), 5)); err != nil {
			t.Fatal(err)
		}
	}
	damage(t, dir, 2, "cut")
	if err := k.Prune(); err != nil {
		t.Fatal(err)
	}
	if got := steps(t, dir); !slices.Equal(got, []int{1, 3}) || len(list) != 1 {
		t.Errorf("steps %v are left and %v were told of", got, list)
	}
}

// TestPruneReadsWhatHasChanged checks that a file that this keeper wrote is read again if its
// modification time, its size or its inode has changed.
func TestPruneReadsWhatHasChanged(t *testing.T) {
	rewrite := func(t *testing.T, path string, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(t *testing.T, path string, data []byte, at time.Time){
		"time": func(t *testing.T, path string, data []byte, at time.Time) {
			rewrite(t, path, append(data[:len(data)-1], data[len(data)-1]^1))
			setTime(t, path, at.Add(time.Second))
		},
		"size": func(t *testing.T, path string, data []byte, at time.Time) {
			rewrite(t, path, data[:len(data)-1])
			setTime(t, path, at)
		},
		"file": func(t *testing.T, path string, data []byte, at time.Time) {
			rewrite(t, path+"2", append(data[:len(data)-1], data[len(data)-1]^1))
			setTime(t, path+"2", at)
			if err := os.Rename(path+"2", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var list told
			k := checkpoint.NewKeeper(vfs.At(dir), 2, list.add)
			for step := 1; step <= 2; step++ {
				if err := k.Save(context.Background(), state(t, step, float32(step), 5)); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, checkpoint.FileName(2))
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			change(t, path, data, info.ModTime())
			if err := k.Prune(); err != nil {
				t.Fatal(err)
			}
			if got := steps(t, dir); !slices.Equal(got, []int{1}) || len(list) != 1 {
				t.Errorf("steps %v are left and %v were told of", got, list)
			}
		})
	}
}

func setTime(t *testing.T, path string, at time.Time) {
	t.Helper()
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// TestPruneWithoutAnIntactOne checks that nothing is removed or renamed if no checkpoint is intact,
// so that a run does not silently start from scratch. The error names what is damaged.
func TestPruneWithoutAnIntactOne(t *testing.T) {
	dir := t.TempDir()
	for step := 1; step <= 3; step++ {
		save(t, dir, state(t, step, float32(step), 5))
		damage(t, dir, step, []string{"empty", "bit in the data"}[step%2])
	}
	k := checkpoint.NewKeeper(vfs.At(dir), 1, nil)
	if err := k.Prune(); err != nil {
		t.Error(err)
	}
	if err := checkpoint.NewKeeper(vfs.At(dir).Join("absent"), 1, nil).Prune(); err != nil {
		t.Errorf("where nothing was saved yet: %v", err)
	}
	if err := k.Latest((*checkpoint.File).Verify); !errors.Is(err, checkpoint.ErrDamaged) ||
		errors.Is(err, checkpoint.ErrNone) || strings.Count(err.Error(), `"w"`) != 2 ||
		strings.Count(err.Error(), checkpoint.FileName(2)) != 1 {
		t.Errorf("latest: %v", err)
	}
	if got := steps(t, dir); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("steps %v are left", got)
	}
}

// TestPutAsideTwice checks that a second damaged checkpoint of a step does not replace the first.
func TestPutAsideTwice(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, state(t, 1, 1, 5))
	var list told
	for range 2 {
		save(t, dir, state(t, 2, 2, 5))
		damage(t, dir, 2, "cut")
		step := 0
		err := checkpoint.NewKeeper(vfs.At(dir), 1, list.add).Latest(func(f *checkpoint.File) error {
			step = f.Step
			return nil
		})
		if err != nil || step != 1 {
			t.Fatalf("step %d, %v", step, err)
		}
	}
	name := checkpoint.FileName(2) + checkpoint.DamagedSuffix
	if want := (told{name, name + "2"}); !slices.Equal(list, want) {
		t.Errorf("told of %v, want %v", list, want)
	}
	if got := steps(t, dir); !slices.Equal(got, []int{1}) {
		t.Errorf("steps %v are left", got)
	}
}

func TestOpenAndVerify(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, state(t, 1, 1, 5))
	path := save(t, dir, state(t, 7, 1.5, 5))
	f, err := load(t, path)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := path.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if f.Step != 7 || len(f.Infos()) != 2 || !slices.Equal(f.Infos()[0].Shape, []int{5}) ||
		len(f.Digest()) != 64 ||
		f.Size() != stat.Size() || len(f.Meta) != 1 || f.Meta["value"] != "1.5" {
		t.Errorf("%+v", f)
	}
}

// TestOpenStepWhileSaving checks that the newest checkpoint can be opened and read at any moment,
// while a keeper of a single one saves and removes.
func TestOpenStepWhileSaving(t *testing.T) {
	const last = 200
	dir := vfs.At(t.TempDir())
	keeper := checkpoint.NewKeeper(dir, 1, nil)
	keep := func(step int) error {
		return errors.Join(keeper.Save(context.Background(), state(t, step, 1, 5)), keeper.Prune())
	}
	if err := keep(1); err != nil {
		t.Fatal(err)
	}
	saved := make(chan error, 1)
	go func() {
		var err error
		for step := 2; step <= last && err == nil; step++ {
			err = keep(step)
		}
		saved <- err
	}()
	first, err := checkpoint.OpenStep(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for step := 0; step < last; {
		f, err := checkpoint.OpenStep(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Verify(), f.Close()); err != nil || f.Step < step {
			t.Fatalf("step %d after %d: %v", f.Step, step, err)
		}
		step = f.Step
	}
	if err := errors.Join(<-saved, first.Verify()); err != nil {
		t.Error(err)
	}
	// A link to a file that does not exist is there: it is not looked for again.
	if err := os.Symlink("absent", dir.Join(checkpoint.FileName(last+1)).Name); err != nil {
		t.Fatal(err)
	}
	if f, err := checkpoint.OpenStep(dir, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", f, err)
	}
}
