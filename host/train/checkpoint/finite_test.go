package checkpoint_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(-1))
)

// single returns a tensor of zeros whose last element is value.
func single(t *testing.T, name string, dtype safetensors.DType, value float32) safetensors.Tensor {
	t.Helper()
	const n = 100_003
	var x safetensors.Tensor
	var err error
	if dtype == safetensors.F32 {
		x, err = safetensors.New(name, []int{n}, append(make([]float32, n-1), value))
	} else {
		x, err = safetensors.New(name, []int{n},
			append(make([]uint16, n-1), uint16(math.Float32bits(value)>>16)))
		x.DType = dtype
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// finiteOf opens a checkpoint and reports whether it is finite.
func finiteOf(t *testing.T, path vfs.Path) bool {
	t.Helper()
	f, err := load(t, path)
	if err != nil {
		t.Fatal(err)
	}
	finite, err := f.Finite()
	if err != nil {
		t.Fatal(err)
	}
	return finite
}

// TestFinite checks Finite for one file, for a checkpoint in parts, and for a file of an earlier
// version, whose metadata lacks this information.
func TestFinite(t *testing.T) {
	for _, c := range []struct {
		name  string
		dtype safetensors.DType
		value float32
		want  bool
	}{
		{"param/w", safetensors.F32, math.MaxFloat32, true}, {"param/w", safetensors.F32, nan, false},
		{"param/w", safetensors.F32, -nan, false},
		{"param/w", safetensors.F32, inf, false}, {"param/w", safetensors.BF16, 1, true},
		{"param/w", safetensors.BF16, inf, false},
		{"state/w/m", safetensors.F32, nan, false}, {"state/w/m", safetensors.BF16, nan, false},
		{"state/w/m", safetensors.F32, inf, true},
		{"kept/w/s", safetensors.F32, nan, false}, {"refresh/w/s", safetensors.F32, nan, true},
		{"state/w/codes", safetensors.U16, nan, true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			list := []safetensors.Tensor{single(t, "param/a", safetensors.F32, 1),
				single(t, c.name, c.dtype, c.value)}
			dir := vfs.At(t.TempDir())
			path := save(t, dir.Name, checkpoint.State{Step: 1, Tensors: list})
			if got := finiteOf(t, path); got != c.want {
				t.Errorf("finite: %t, want %t", got, c.want)
			}
			old := dir.Join(checkpoint.FileName(2))
			if err := safetensors.WriteFile(t.Context(), old, list,
				map[string]string{"step": "2"}); err != nil {
				t.Fatal(err)
			}
			if got := finiteOf(t, old); got != c.want {
				t.Errorf("of an older version: finite: %t, want %t", got, c.want)
			}
			name := checkpoint.PartName(3, 1, 1, 7)
			if err := checkpoint.SavePart(t.Context(), dir, name, list[1:]); err != nil {
				t.Fatal(err)
			}
			whole, err := checkpoint.Save(t.Context(), dir, checkpoint.State{Step: 3, Tensors: list[:1]},
				name)
			if err != nil {
				t.Fatal(err)
			}
			if got := finiteOf(t, whole); got != c.want {
				t.Errorf("in parts: finite: %t, want %t", got, c.want)
			}
		})
	}
}

// saveValues saves checkpoints of the steps 1, 2, … with a parameter of the given values.
func saveValues(t *testing.T, dir string, values ...float32) {
	t.Helper()
	for i, v := range values {
		save(t, dir, checkpoint.State{Step: i + 1,
			Tensors: []safetensors.Tensor{single(t, "param/w", safetensors.F32, v)}})
	}
}

// TestPruneKeepsTheNewestFinite checks that Prune keeps the newest finite checkpoint.
func TestPruneKeepsTheNewestFinite(t *testing.T) {
	for _, c := range []struct {
		keep   int
		values []float32
		want   []int
	}{
		{1, []float32{1, 2, nan, inf}, []int{2, 4}},
		{2, []float32{1, 2, nan, nan, nan}, []int{2, 4, 5}},
		{2, []float32{1, 2, nan, 4, nan}, []int{4, 5}},
		{1, []float32{nan, 2, nan, 4}, []int{4}},
		{2, []float32{nan, nan, nan}, []int{2, 3}},
	} {
		dir := t.TempDir()
		saveValues(t, dir, c.values...)
		if err := checkpoint.NewKeeper(vfs.At(dir), c.keep, nil).Prune(); err != nil {
			t.Fatal(err)
		}
		if got := steps(t, dir); !slices.Equal(got, c.want) {
			t.Errorf("read by another process, keep %d of %v: left %v, want %v", c.keep, c.values, got,
				c.want)
		}
		dir = t.TempDir()
		k := checkpoint.NewKeeper(vfs.At(dir), c.keep, nil)
		for i, v := range c.values {
			s := checkpoint.State{Step: i + 1,
				Tensors: []safetensors.Tensor{single(t, "param/w", safetensors.F32, v)}}
			if err := errors.Join(k.Save(t.Context(), s), k.Prune()); err != nil {
				t.Fatal(err)
			}
		}
		if got := steps(t, dir); !slices.Equal(got, c.want) {
			t.Errorf("written, keep %d of %v: left %v, want %v", c.keep, c.values, got, c.want)
		}
	}
}

// TestLatestIsFinite checks that checkpoints newer than the newest finite one are skipped and
// renamed. If none is finite, the newest intact one is used.
func TestLatestIsFinite(t *testing.T) {
	for _, c := range []struct {
		values  []float32
		damaged int
		want    int
		aside   told
	}{
		{[]float32{1, 2, nan, inf}, 0, 2,
			told{"step-00000004.safetensors.notfinite", "step-00000003.safetensors.notfinite"}},
		{[]float32{1, nan, 3, nan}, 3, 1,
			told{"step-00000003.safetensors.damaged", "step-00000004.safetensors.notfinite",
				"step-00000002.safetensors.notfinite"}},
		{[]float32{nan, nan, 3}, 3, 2, told{"step-00000003.safetensors.damaged"}},
		{[]float32{nan, 2}, 0, 2, nil},
	} {
		dir := t.TempDir()
		saveValues(t, dir, c.values...)
		if c.damaged > 0 {
			damage(t, dir, c.damaged, "bit in the data")
		}
		var list told
		step := 0
		k := checkpoint.NewKeeper(vfs.At(dir), 1, func(path vfs.Path, err error) {
			if !errors.Is(err, checkpoint.ErrNotFinite) && !errors.Is(err, checkpoint.ErrDamaged) {
				t.Error(err)
			}
			list = append(list, path.Base())
		})
		err := k.Latest(func(f *checkpoint.File) error {
			step = f.Step
			return f.Verify()
		})
		if err != nil || step != c.want || !slices.Equal(list, c.aside) {
			t.Errorf("%v: step %d, %v, put aside %v; want step %d and %v", c.values, step, err, list, c.want,
				c.aside)
		}
	}
}

// TestManyTensors checks that the time to open and read a checkpoint is linear in the number of its
// tensors. Quadratic time would be minutes.
func TestManyTensors(t *testing.T) {
	testlevel.Long(t, "writes 40,000 tensors")
	const n = 40_000
	var list []safetensors.Tensor
	for i := range n {
		x, err := safetensors.New(fmt.Sprintf("state/a.long.name.of.a.tensor/%06d", i), nil,
			[]float32{float32(i)})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	dir := vfs.At(t.TempDir())
	part := checkpoint.PartName(1, 1, 1, 7)
	if err := checkpoint.SavePart(t.Context(), dir, part, list[n/2:]); err != nil {
		t.Fatal(err)
	}
	path, err := checkpoint.Save(t.Context(), dir, checkpoint.State{Step: 1, Tensors: list[:n/2]},
		part)
	if err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, x := range f.Tensors {
		again, err := f.Tensor(x.Name)
		if err != nil || !f.Has(x.Name) || again.Write(io.Discard) != nil {
			t.Fatalf("%s: %v", x.Name, err)
		}
	}
	if len(f.Tensors) != n {
		t.Errorf("%d tensors, want %d", len(f.Tensors), n)
	}
}
