package checkpoint_test

import (
	"context"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/vfs"
)

// makeState makes a state whose every number is value.
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

// latest is the step of the newest intact checkpoint.
func latest(dir string, warn func(vfs.Path, error)) (step int, err error) {
	err = checkpoint.Latest(vfs.At(dir), warn, func(f *checkpoint.File) error {
		step = f.Step
		return f.Verify()
	})
	return step, err
}

// values are the numbers of a state's tensors by name.
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
