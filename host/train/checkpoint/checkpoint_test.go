package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/vfs"
)

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run", "checkpoints")
	want := state(t, 100, 1.5, 3)
	type position struct {
		Epoch, Window int
		Seed          uint64
	}
	set := position{2, 77, 1<<63 + 1}
	if err := want.Meta.Set("sampler", set); err != nil {
		t.Fatal(err)
	}
	path := save(t, dir, want)
	if base := path.Base(); base != "step-00000100.safetensors" {
		t.Errorf("file name %q", base)
	}
	got, err := load(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(values(t, want), values(t, got.State)) +
		cmp.Diff(want.Meta, got.Meta); diff != "" || got.Step != 100 {
		t.Errorf("state of step %d differs (-want +got):\n%s", got.Step, diff)
	}
	var back position
	if err := got.Meta.Get("sampler", &back); err != nil || back != set {
		t.Errorf("sampler position %v, %v; want %v", back, err, set)
	}
}

func TestMetaErrors(t *testing.T) {
	m := checkpoint.Meta{"n": `"text"`}
	var n int
	if err := m.Get("absent", &n); !errors.Is(err, checkpoint.ErrDamaged) ||
		!strings.Contains(err.Error(), `"absent"`) {
		t.Errorf("missing key: %v", err)
	}
	if err := m.Get("n", &n); !errors.Is(err, checkpoint.ErrDamaged) ||
		!strings.Contains(err.Error(), `"n"`) {
		t.Errorf("wrong type: %v", err)
	}
	m["s"] = `{"a": 1, "later": 2}`
	var s struct {
		A int `json:"a"`
	}
	if err := m.Get("s", &s); !errors.Is(err, checkpoint.ErrDamaged) ||
		!strings.Contains(err.Error(), "later") {
		t.Errorf("a member that nobody knows: %v", err)
	}
	if err := m.Set("f", func() {}); err == nil {
		t.Error("a function is stored")
	}
}

func TestSaveRefuses(t *testing.T) {
	dir := t.TempDir()
	negative := state(t, -1, 0, 1)
	reserved := state(t, 1, 0, 1)
	reserved.Meta["step"] = "2"
	parts := state(t, 1, 0, 1)
	parts.Meta["parts"] = "[]"
	for name, s := range map[string]checkpoint.State{"negative step": negative,
		"reserved key": reserved, "reserved key of parts": parts} {
		if _, err := checkpoint.Save(context.Background(), vfs.At(dir), s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := checkpoint.Save(ctx, vfs.At(dir), state(t, 1, 0, 1)); !errors.Is(err,
		context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Save(context.Background(), vfs.At(file), state(t, 1, 0, 1)); err == nil {
		t.Error("a file is taken for a directory")
	}
	if got := steps(t, dir); len(got) != 0 {
		t.Errorf("checkpoints of steps %v were left", got)
	}
}

func TestListIgnoresOtherFiles(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []int{300, 7, 123456789, 0} {
		save(t, dir, state(t, step, 0, 1))
	}
	for _, name := range []string{"step-1.safetensors", "step-0000000x.safetensors",
		".step-00000001.safetensors99", "step-00000001.safetensors.bak", "step--0000001.safetensors",
		"step-+0000001.safetensors"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := steps(t, dir); !slices.Equal(got, []int{0, 7, 300, 123456789}) {
		t.Errorf("steps %v", got)
	}
	if got := steps(t, filepath.Join(dir, "absent")); len(got) != 0 {
		t.Errorf("an absent directory has steps %v", got)
	}
}

// damage changes the file of a step in the given way.
func damage(t *testing.T, dir string, step int, how string) {
	t.Helper()
	path := filepath.Join(dir, checkpoint.FileName(step))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	switch how {
	case "bit in the data":
		data[len(data)-1] ^= 1
	case "bit in the metadata":
		data[strings.Index(string(data), `"value"`)+1] ^= 1
	case "no digest":
		data = []byte(strings.Replace(string(data), safetensors.HeaderDigestKey, "Header_sha256", 1))
	case "cut":
		data = data[:len(data)/2]
	case "empty":
		data = nil
	case "other step":
		if data, err = os.ReadFile(filepath.Join(dir, checkpoint.FileName(1))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLatestSkipsDamaged(t *testing.T) {
	for _, how := range []string{"bit in the data", "bit in the metadata", "no digest", "cut", "empty",
		"other step"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			for step := 1; step <= 3; step++ {
				save(t, dir, state(t, step, float32(step), 5))
			}
			damage(t, dir, 3, how)
			var warned []string
			step, err := latest(dir, func(path vfs.Path, err error) {
				if !errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), path.Name) {
					t.Errorf("warning %v for %s", err, path)
				}
				warned = append(warned, path.Base())
			})
			if err != nil || step != 2 {
				t.Errorf("latest is step %d, %v; want 2", step, err)
			}
			if !slices.Equal(warned, []string{checkpoint.FileName(3)}) {
				t.Errorf("warned of %v", warned)
			}
		})
	}
}

func TestLatestWithoutAnyToUse(t *testing.T) {
	dir := t.TempDir()
	if _, err := latest(dir, nil); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("empty directory: %v", err)
	}
	save(t, dir, state(t, 1, 1, 5))
	damage(t, dir, 1, "cut")
	if _, err := latest(dir, nil); !errors.Is(err, checkpoint.ErrDamaged) ||
		errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("only damaged checkpoints: %v", err)
	}
	if _, err := checkpoint.Open(vfs.At(dir).Join("absent")); !errors.Is(err, os.ErrNotExist) ||
		errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("absent file: %v", err)
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	for step := 1; step <= 5; step++ {
		save(t, dir, state(t, step*10, 0, 1))
	}
	left := filepath.Join(dir, "."+checkpoint.FileName(60)+".cage-unfinished-123")
	for _, path := range []string{left, filepath.Join(dir, "notes.txt")} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkpoint.NewKeeper(vfs.At(dir), 2, nil).Prune(); err != nil {
		t.Fatal(err)
	}
	if got := steps(t, dir); !slices.Equal(got, []int{40, 50}) {
		t.Errorf("steps %v are left", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("%d files are left (%v), want two checkpoints and notes.txt", len(entries), err)
	}
	if err := checkpoint.NewKeeper(vfs.At(dir), 7, nil).Prune(); err != nil {
		t.Error(err)
	}
	err = checkpoint.RemoveAll(vfs.At(dir))
	if entries, _ := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%d files are left (%v), want notes.txt", len(entries), err)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	keeper := checkpoint.NewKeeper(vfs.At(dir), 2, nil)
	for step := 100; step <= 300; step += 100 {
		w, _ := safetensors.New("w", []int{2}, []float32{float32(step), 0})
		meta := checkpoint.Meta{}
		_ = meta.Set("total_steps", 1000)
		if err := keeper.Save(context.Background(),
			checkpoint.State{Step: step, Tensors: []safetensors.Tensor{w}, Meta: meta}); err != nil {
			fmt.Println(err)
		}
		if err := keeper.Prune(); err != nil {
			fmt.Println(err)
		}
	}
	err = checkpoint.Latest(vfs.At(dir), nil, func(f *checkpoint.File) error {
		w, err := f.Tensor("w")
		if err != nil {
			return err
		}
		values, err := safetensors.Values[float32](w)
		fmt.Println(f.Step, w.Name, values, f.Meta["total_steps"])
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 300 w [300 0] 1000
}

// TestLatestReadsWhatIsUsed checks that only the tensors that are used are read, and that only
// damage in these counts.
func TestLatestReadsWhatIsUsed(t *testing.T) {
	for name, want := range map[string]int{"w": 1, "adamw/w/m": 2} {
		dir := t.TempDir()
		save(t, dir, state(t, 1, 1, 5))
		save(t, dir, state(t, 2, 2, 5))
		damage(t, dir, 2, "bit in the data") // the last tensor is w
		var warned []string
		var got []float32
		err := checkpoint.Latest(vfs.At(dir),
			func(path vfs.Path, err error) {
				warned = append(warned, err.Error())
			}, func(f *checkpoint.File) error {
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

// TestLatestReturnsOtherErrors checks that an error in the use of an intact checkpoint is returned,
// and that the checkpoint does not count as damaged.
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

// TestDamageOfAnotherFile checks that a checkpoint does not count as damaged if its use fails
// because another file, such as that of the initial model, is damaged.
func TestDamageOfAnotherFile(t *testing.T) {
	dir, initial := t.TempDir(), t.TempDir()
	save(t, dir, state(t, 1, 1, 5))
	save(t, dir, state(t, 2, 2, 5))
	save(t, initial, state(t, 1, 1, 5))
	damage(t, initial, 1, "bit in the data")
	calls := 0
	use := func(f *checkpoint.File) error {
		calls++
		return errors.Join(f.Verify(), checkpoint.Use(vfs.At(initial), 0, (*checkpoint.File).Verify))
	}
	for name, err := range map[string]error{
		"Latest": checkpoint.NewKeeper(vfs.At(dir), 1, nil).Latest(use),
		"Use":    checkpoint.Use(vfs.At(dir), 0, use),
	} {
		if !errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), initial) ||
			strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls, want one each", calls)
	}
}

// TestPruneReadsWhatWasNotUsed checks that a checkpoint with unread tensors counts as intact only
// after they have been read.
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

// TestCopy checks that an open checkpoint can be saved elsewhere and over itself, unless it is
// damaged.
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
	if _, err := checkpoint.Save(context.Background(), vfs.At(elsewhere), spoiled.State); !errors.Is(
		err, checkpoint.ErrDamaged) {
		t.Errorf("a damaged one is copied: %v", err)
	}
	if got := steps(t, elsewhere); len(got) != 0 {
		t.Errorf("the copy of a damaged one: steps %v", got)
	}
}
