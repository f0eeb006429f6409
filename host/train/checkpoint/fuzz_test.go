package checkpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/vfs"
)

// makeState returns a state in which every number is value.
func makeState(step int, value float32, size int) (checkpoint.State, error) {
	values := slices.Repeat([]float32{value}, size)
	s := checkpoint.State{Step: step, Meta: checkpoint.Meta{}}
	for _, name := range []string{"adamw/w/m", "w"} {
		x, err := safetensors.New(name, []int{size}, values)
		if err != nil {
			return s, err
		}
		s.Tensors = append(s.Tensors, x)
	}
	return s, s.Meta.Set("value", value)
}

func state(t testing.TB, step int, value float32, size int) checkpoint.State {
	t.Helper()
	s, err := makeState(step, value, size)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func save(t testing.TB, dir string, s checkpoint.State) vfs.Path {
	t.Helper()
	path, err := checkpoint.Save(context.Background(), vfs.At(dir), s)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// load opens a checkpoint and verifies all of it. It stays open until the test ends.
func load(t testing.TB, path vfs.Path) (*checkpoint.File, error) {
	f, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { f.Close() })
	return f, f.Verify()
}

// latest returns the step of the newest intact checkpoint.
func latest(dir string, warn func(vfs.Path, error)) (step int, err error) {
	err = checkpoint.Latest(vfs.At(dir), warn, func(f *checkpoint.File) error {
		step = f.Step
		return f.Verify()
	})
	return step, err
}

// values returns the values of a state's tensors by name.
func values(t testing.TB, s checkpoint.State) map[string][]float32 {
	t.Helper()
	out := map[string][]float32{}
	for _, x := range s.Tensors {
		v, err := safetensors.Values[float32](x)
		if err != nil {
			t.Fatal(err)
		}
		out[x.Name] = v
	}
	return out
}

func steps(t testing.TB, dir string) []int {
	t.Helper()
	entries, err := checkpoint.List(vfs.At(dir))
	if err != nil {
		t.Fatal(err)
	}
	out := []int{}
	for _, entry := range entries {
		out = append(out, entry.Step)
	}
	return out
}

// FuzzLoad checks that any file is either an intact checkpoint, or damaged with an error that names
// it, and that reading all tensors and Verify agree.
func FuzzLoad(f *testing.F) {
	for _, size := range []int{0, 3} {
		content, err := os.ReadFile(save(f, f.TempDir(), state(f, 7, 0.5, size)).Name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, 7)
		f.Add(content[:len(content)-1], 7)
		f.Add(content, 8)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, step int) {
		path := vfs.At(filepath.Join(dir, checkpoint.FileName(max(step, 0))))
		if err := os.WriteFile(path.Name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path.Name)
		f, err := load(t, path)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), path.Name) {
				t.Fatalf("not that of a damaged file, or without its name: %v", err)
			}
			if f == nil {
				return
			}
		}
		if len(f.Tensors) == 0 {
			return
		}
		var readErr error
		for _, x := range f.Tensors {
			_, err := x.Bytes()
			readErr = errors.Join(readErr, err)
		}
		if (err == nil) != (readErr == nil) || readErr != nil &&
			(!errors.Is(readErr, checkpoint.ErrDamaged) || !strings.Contains(readErr.Error(), path.Name)) {
			t.Fatalf("verifying says %v, reading %v", err, readErr)
		}
		if len(f.Infos()) != len(f.Tensors) || f.Size() != int64(len(content)) {
			t.Fatalf("%d infos of %d tensors, %d bytes of %d", len(f.Infos()), len(f.Tensors), f.Size(),
				len(content))
		}
	})
}

// FuzzMetadata checks that with any metadata, an intact file is either a checkpoint of the step in
// its name, or damaged.
func FuzzMetadata(f *testing.F) {
	f.Add("7", "seed", "12")
	f.Add("07", "sampler", `{"epoch":1,"unknown":2}`)
	f.Add("-1", "step", "null")
	f.Add("9223372036854775808", "", `{"epoch":1e3,"order":[1,2]}`)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, step, key, value string) {
		path := vfs.At(filepath.Join(dir, checkpoint.FileName(7)))
		metadata := map[string]string{key: value}
		metadata["step"] = step
		if safetensors.WriteFile(t.Context(), path, nil, metadata) != nil {
			return // not UTF-8
		}
		s, err := load(t, path)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), path.Name) {
				t.Fatalf("not that of a damaged file, or without its name: %v", err)
			}
			return
		}
		if s.Step != 7 {
			t.Fatalf("step %d in a file that is named for step 7", s.Step)
		}
		got := struct {
			Epoch int
			Order []int
		}{}
		if err := s.Meta.Get(key, &got); err != nil {
			if !errors.Is(err, checkpoint.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		again := checkpoint.Meta{}
		if err := again.Set(key, got); err != nil {
			t.Fatal(err)
		}
	})
}
