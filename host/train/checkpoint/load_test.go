package checkpoint_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestLatestReadsWhatIsUsed: only what is used of a checkpoint is read, and only damage in
// that part counts.
func TestLatestReadsWhatIsUsed(t *testing.T) {
	for name, want := range map[string]int{"w": 1, "adamw/w/m": 2} {
		dir := t.TempDir()
		save(t, dir, state(t, 1, 1, 5))
		save(t, dir, state(t, 2, 2, 5))
		damage(t, dir, 2, "bit in the data") // the last tensor is w
		var warned []string
		var got []float32
		err := checkpoint.Latest(vfs.At(dir), func(path vfs.Path, err error) { warned = append(warned, err.Error()) }, func(f *checkpoint.File) error {
			x, err := f.Tensor(name)
			if err == nil {
				got, err = safetensors.Values[float32](x)
			}
			return err
		})
		if err != nil || !slices.Equal(got, slices.Repeat([]float32{float32(want)}, 5)) {
			t.Errorf("%s: %v, %v; want that of step %d", name, got, err, want)
		}
		if len(warned) != 2-want || len(warned) > 0 && !strings.Contains(warned[0], `tensor "w"`) {
			t.Errorf("%s: warned of %v", name, warned)
		}
	}
}

// TestLatestReturnsOtherErrors: an error in the use of an intact checkpoint is returned, and
// the checkpoint does not count as damaged.
func TestLatestReturnsOtherErrors(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, state(t, 1, 1, 5))
	save(t, dir, state(t, 2, 2, 5))
	calls := 0
	err := checkpoint.NewKeeper(vfs.At(dir), 1, nil).Latest(func(f *checkpoint.File) error {
		calls++
		_, err := f.Tensor("absent")
		return errors.Join(err, f.Meta.Get("absent", new(int)))
	})
	if err == nil || calls != 1 || !strings.Contains(err.Error(), "there is no tensor absent") {
		t.Errorf("%d calls, %v", calls, err)
	}
	if got := steps(t, dir); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("steps %v are left", got)
	}
}

// TestPruneReadsWhatWasNotUsed: a checkpoint of which a part was used does not count as
// intact before the rest is read.
func TestPruneReadsWhatWasNotUsed(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, state(t, 1, 1, 5))
	save(t, dir, state(t, 2, 2, 5))
	damage(t, dir, 2, "bit in the data")
	var list told
	k := checkpoint.NewKeeper(vfs.At(dir), 1, list.add)
	if err := k.Latest(func(*checkpoint.File) error { return nil }); err != nil || len(list) > 0 {
		t.Fatalf("%v, told of %v", err, list)
	}
	if err := k.Prune(); err != nil {
		t.Fatal(err)
	}
	if got := steps(t, dir); !slices.Equal(got, []int{1}) || len(list) != 1 {
		t.Errorf("steps %v are left and %v were told of", got, list)
	}
}

// TestCopy: an open checkpoint can be saved elsewhere, and over itself; a damaged one
// cannot.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, state(t, 7, 1.5, 1<<20))
	want, err := path.ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, to := range []string{dir, t.TempDir()} {
		if got, err := save(t, to, f.State).ReadFile(); err != nil || !slices.Equal(got, want) {
			t.Errorf("the copy differs, %v", err)
		}
	}
	damage(t, dir, 7, "bit in the data")
	spoiled, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer spoiled.Close()
	elsewhere := t.TempDir()
	if _, err := checkpoint.Save(context.Background(), vfs.At(elsewhere), spoiled.State); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("a damaged one is copied: %v", err)
	}
	if got := steps(t, elsewhere); len(got) != 0 {
		t.Errorf("the copy of a damaged one: steps %v", got)
	}
}
