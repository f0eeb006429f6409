package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/testing/crashfs"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// saveParts writes a state in n parts, each with some or no rows of each tensor. It returns the
// paths of all files, the main file first.
func saveParts(
	t testing.TB, dir string, s checkpoint.State, n int, mark uint32, random *rand.Rand,
) []string {
	t.Helper()
	names, err := writeParts(vfs.At(dir), s, n, mark, random)
	if err != nil {
		t.Fatal(err)
	}
	s.Tensors = nil
	path, err := checkpoint.Save(t.Context(), vfs.At(dir), s, names...)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{path.Name}
	for _, name := range names {
		files = append(files, filepath.Join(dir, name))
	}
	return files
}

// writeParts writes the parts without a checkpoint, and returns their names.
func writeParts(
	dir vfs.Path, s checkpoint.State, n int, mark uint32, random *rand.Rand,
) (names []string, err error) {
	parts := make([][]safetensors.Tensor, n)
	for _, x := range s.Tensors {
		if len(x.Shape) == 0 || random.IntN(4) == 0 { // one part has the whole tensor
			to := random.IntN(n)
			parts[to] = append(parts[to], x)
			continue
		}
		data, err := x.Bytes()
		if err != nil {
			return nil, err
		}
		row := len(data) / max(1, x.Shape[0])
		at := 0
		for i := range n {
			rows := random.IntN(x.Shape[0] - at + 1)
			if i == n-1 {
				rows = x.Shape[0] - at
			}
			piece := safetensors.Tensor{Name: x.Name, DType: x.DType,
				Shape: append([]int{rows}, x.Shape[1:]...)}
			content := data[at*row : (at+rows)*row]
			piece.Write = func(w io.Writer) error { _, err := w.Write(content); return err }
			parts[i] = append(parts[i], piece)
			at += rows
		}
	}
	for i, tensors := range parts {
		names = append(names, checkpoint.PartName(s.Step, i+1, n, mark))
		if err := checkpoint.SavePart(context.Background(), dir, names[i], tensors); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// randomState returns a state with tensors of several types and shapes.
func randomState(t *testing.T, step int, random *rand.Rand) checkpoint.State {
	t.Helper()
	s := checkpoint.State{Step: step, Meta: checkpoint.Meta{}}
	if err := s.Meta.Set("value", random.Float64()); err != nil {
		t.Fatal(err)
	}
	types := []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.U8, safetensors.F64}
	for i := range 1 + random.IntN(6) {
		x := safetensors.Tensor{Name: fmt.Sprint("t", i), DType: types[random.IntN(len(types))]}
		size := x.DType.Bits() / 8
		for range random.IntN(4) {
			x.Shape = append(x.Shape, random.IntN(6))
			size *= x.Shape[len(x.Shape)-1]
		}
		data := make([]byte, size)
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		x.Write = func(w io.Writer) error { _, err := w.Write(data); return err }
		s.Tensors = append(s.Tensors, x)
	}
	return s
}

// TestParts checks that reading a checkpoint, or a copy of it, gives the same tensors however their
// rows were divided among processes, and that a changed bit in any file is found.
func TestParts(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		s := randomState(t, random.IntN(1000), random)
		dir, alone := t.TempDir(), t.TempDir()
		files := saveParts(t, dir, s, 1+random.IntN(4), random.Uint32(), random)
		want, err := load(t, save(t, alone, s))
		if err != nil {
			t.Fatal(err)
		}
		got, err := load(t, vfs.At(files[0]))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Meta, got.Meta); diff != "" || got.Step != s.Step ||
			len(got.Parts) != len(files)-1 {
			t.Errorf("step %d with %d parts: %s", got.Step, len(got.Parts), diff)
		}
		size := int64(0)
		for _, name := range files {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if got.Size() != size {
			t.Errorf("it has %d bytes, want %d", got.Size(), size)
		}
		for _, x := range want.Tensors { // empty tensors may be in another order
			y, err := got.Tensor(x.Name)
			if err != nil {
				t.Fatal(err)
			}
			a, errA := x.Bytes()
			b, errB := y.Bytes()
			info := got.Infos()[slices.IndexFunc(got.Infos(),
				func(i safetensors.Info) bool { return i.Name == x.Name })]
			if errA != nil || errB != nil || !bytes.Equal(a, b) || !slices.Equal(x.Shape, y.Shape) ||
				info.End-info.Begin != int64(len(a)) || !got.Has(x.Name) {
				t.Errorf("%s %v is %v, %+v, %v, %v", x.Name, x.Shape, y.Shape, info, errA, errB)
			}
		}
		if a, b := filled(want), filled(got); !slices.Equal(a, b) ||
			len(want.Tensors) != len(got.Tensors) {
			t.Errorf("the order is %v, want %v", b, a)
		}
		content, err := vfs.At(filepath.Join(alone, checkpoint.FileName(s.Step))).ReadFile()
		if err != nil {
			t.Fatal(err)
		}
		if copied, err := save(t, t.TempDir(), got.State).ReadFile(); err != nil ||
			!bytes.Equal(copied, content) {
			t.Errorf("the copy is not the file that one process writes, %v", err)
		}

		name := files[random.IntN(len(files))]
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		data[random.IntN(len(data))] ^= 1 << random.IntN(8)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t, vfs.At(files[0])); !errors.Is(err, checkpoint.ErrDamaged) ||
			!strings.Contains(err.Error(), fmt.Sprintf("step-%08d.", s.Step)) {
			t.Errorf("a byte of %s has changed: %v", name, err)
		}
	}
}

// filled returns the names of the tensors with elements, in order.
func filled(f *checkpoint.File) (names []string) {
	for _, i := range f.Infos() {
		if i.End > i.Begin {
			names = append(names, i.Name)
		}
	}
	return names
}

// TestDamagedParts checks that a checkpoint with a damaged part is skipped, and renamed with its
// parts.
func TestDamagedParts(t *testing.T) {
	for how, damage := range map[string]func(part, other string) error{
		"missing": func(part, _ string) error { return os.Remove(part) },
		"empty":   func(part, _ string) error { return os.Truncate(part, 0) },
		"cut": func(part, _ string) error {
			info, err := os.Stat(part)
			return errors.Join(err, os.Truncate(part, info.Size()-1))
		},
		"that of another save": func(part, other string) error { return os.Rename(other, part) },
		"another part": func(part, _ string) error {
			data, err := os.ReadFile(strings.Replace(part, "part-2", "part-1", 1))
			return errors.Join(err, os.WriteFile(part, data, 0o600))
		},
	} {
		t.Run(how, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			dir, other := t.TempDir(), t.TempDir()
			saveParts(t, dir, state(t, 1, 1, 9), 3, 1, random)
			files := saveParts(t, dir, state(t, 2, 2, 9), 3, 2, random)
			if err := damage(files[2], saveParts(t, other, state(t, 2, 3, 9), 3, 2, random)[2]); err != nil {
				t.Fatal(err)
			}
			if _, err := checkpoint.Open(vfs.At(files[0])); !errors.Is(err, checkpoint.ErrDamaged) ||
				!strings.Contains(err.Error(), files[0]) ||
				!strings.Contains(err.Error(), filepath.Base(files[2])) {
				t.Errorf("error %v, want one that names the checkpoint and its part", err)
			}
			var list told
			k := checkpoint.NewKeeper(vfs.At(dir), 1, list.add)
			step := 0
			if err := k.Latest(func(f *checkpoint.File) error {
				step = f.Step
				return f.Verify()
			}); err != nil || step != 1 {
				t.Errorf("the latest is of step %d, %v", step, err)
			}
			if err := k.Prune(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(list, told{filepath.Base(files[0]) + checkpoint.DamagedSuffix}) ||
				!slices.Equal(steps(t, dir), []int{1}) {
				t.Errorf("told of %v, steps %v are left", list, steps(t, dir))
			}
			for _, name := range files {
				_, err := os.Stat(name + checkpoint.DamagedSuffix)
				if gone := how == "missing" && name == files[2]; (err != nil) != gone {
					t.Errorf("%s was not put aside: %v", name, err)
				}
			}
		})
	}
}

// TestPartsThatDoNotFit checks that parts with a wrong name are refused, and that a checkpoint is
// damaged if its parts do not fit together.
func TestPartsThatDoNotFit(t *testing.T) {
	dir := vfs.At(t.TempDir())
	if err := checkpoint.SavePart(t.Context(), dir, "step-00000001.safetensors", nil); err == nil {
		t.Error("a part has the name of a checkpoint")
	}
	name := checkpoint.PartName(1, 1, 2, 3)
	if _, err := checkpoint.Save(t.Context(), dir, checkpoint.State{Step: 1}, name); err == nil ||
		!strings.Contains(err.Error(), "part "+dir.Join(name).Name+" is missing") {
		t.Errorf("a part that is not there: %v", err)
	}
	tensor := func(dtype safetensors.DType, shape ...int) safetensors.Tensor {
		return safetensors.Tensor{Name: "w", DType: dtype, Shape: shape, Write: func(w io.Writer) error {
			n := dtype.Bits() / 8
			for _, d := range shape {
				n *= d
			}
			_, err := w.Write(make([]byte, n))
			return err
		}}
	}
	const huge = 1<<63 - 1
	for _, pair := range [][2]safetensors.Tensor{
		{tensor(safetensors.F32, 2, 3), tensor(safetensors.F32, 2, 4)},
		{tensor(safetensors.F32, 2, 3), tensor(safetensors.BF16, 2, 3)},
		{tensor(safetensors.F32, 2, 3), tensor(safetensors.F32, 2)},
		{tensor(safetensors.F32), tensor(safetensors.F32)},
		{tensor(safetensors.F32, huge, 0), tensor(safetensors.F32, huge, 0)},
	} {
		var names []string
		for i, x := range pair {
			names = append(names, checkpoint.PartName(1, i+1, 2, 3))
			if err := checkpoint.SavePart(t.Context(), dir, names[i], []safetensors.Tensor{x}); err != nil {
				t.Fatal(err)
			}
		}
		path, err := checkpoint.Save(t.Context(), dir, checkpoint.State{Step: 1}, names...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.Open(path); !errors.Is(err, checkpoint.ErrDamaged) ||
			!strings.Contains(err.Error(), `tensor "w"`) {
			t.Errorf("%v and %v: %v", pair[0].Shape, pair[1].Shape, err)
		}
	}
	// A file in the list of parts must have the name of a part of the same step and directory.
	other := checkpoint.PartName(2, 1, 1, 0)
	if err := checkpoint.SavePart(t.Context(), dir, other, nil); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(dir.Join(other))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The list must be complete and in order.
	digest := func(name string) string {
		f, err := safetensors.Open(dir.Join(name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return `{"file":"` + name + `","sha256":"` + f.Digest() + `"}`
	}
	first, second := digest(checkpoint.PartName(1, 1, 2, 3)), digest(checkpoint.PartName(1, 2, 2, 3))
	for _, list := range []string{`{}`, `[]`, "[" + first + "]", "[" + second + "]", "[" + second +
		"," + first + "]", "[" + first + "," + first + "]", `[{"file":"` + other + `","sha256":"` +
		f.Digest() + `"}]`, `[{"file":"../` + filepath.Base(dir.Name) + `/` + other + `","sha256":"` +
		f.Digest() + `"}]`} {
		path := dir.Join(checkpoint.FileName(1))
		if err := safetensors.WriteFile(t.Context(), path, nil,
			map[string]string{"step": "1", "parts": list}); err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.Open(path); !errors.Is(err, checkpoint.ErrDamaged) ||
			!strings.Contains(err.Error(), path.Name) {
			t.Errorf("parts %s: %v", list, err)
		}
	}
}

// TestPruneParts checks that parts are removed with their checkpoint, and after an interrupted
// save, and that parts of a checkpoint that is not known to be intact stay.
func TestPruneParts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	var want []string
	for step := 1; step <= 3; step++ {
		files := saveParts(t, dir, state(t, step, float32(step), 9), 2, 1, random)
		if step > 1 {
			want = append(want, files...)
		}
	}
	for _, name := range []string{checkpoint.PartName(3, 1, 2, 9), checkpoint.PartName(4, 1, 2, 1)} {
		if err := checkpoint.SavePart(t.Context(), vfs.At(dir), name, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "."+name+".cage-unfinished-123"), []byte("half"),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	notes := filepath.Join(dir, "step-00000004.part-of-my-notes.safetensors")
	if err := os.WriteFile(notes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want = append(want, notes)
	k := checkpoint.NewKeeper(vfs.At(dir), 2, nil)
	if err := k.Prune(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, glob(t, dir)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	// A keeper notices damage to the parts of a checkpoint that it has verified.
	if err := os.Truncate(filepath.Join(dir, checkpoint.PartName(3, 2, 2, 1)), 9); err != nil {
		t.Fatal(err)
	}
	if err := k.Prune(); err != nil || !slices.Equal(steps(t, dir), []int{2}) {
		t.Errorf("steps %v are left, %v", steps(t, dir), err)
	}

	lost := t.TempDir() // without an intact checkpoint
	files := saveParts(t, lost, state(t, 1, 1, 9), 2, 1, random)
	if err := os.Truncate(files[0], 9); err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.NewKeeper(vfs.At(lost), 1, nil).Prune(); err != nil ||
		len(glob(t, lost)) != 3 {
		t.Errorf("%v are left, %v", glob(t, lost), err)
	}
}

// TestPowerLossWithParts checks that after a loss of power at any moment while checkpoints in parts
// are saved and pruned, some saves being incomplete, the saved checkpoints are intact, and that the
// next save leaves no other files.
func TestPowerLossWithParts(t *testing.T) {
	testlevel.Long(t, "it tries every moment")
	random := rand.New(rand.NewPCG(5, 6))
	root := t.TempDir()
	files, err := crashfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	k := checkpoint.NewKeeper(vfs.On(files, root), 1, nil)
	saveNext := func(k *checkpoint.Keeper, dir vfs.Path, step int) {
		s := state(t, step, float32(step), 9)
		names, err := writeParts(dir, s, 2, random.Uint32(), random)
		if err != nil {
			t.Fatal(err)
		}
		s.Tensors = nil
		if err := errors.Join(k.Save(t.Context(), s, names...), k.Prune()); err != nil {
			t.Fatal(err)
		}
	}
	var saved []int // moments after which there is a checkpoint of step 1, 2, …
	for step := 1; step <= 3; step++ {
		// an interrupted save, without a main file
		if _, err := writeParts(vfs.On(files, root), state(t, step, 99, 9), 2, random.Uint32(),
			random); err != nil {
			t.Fatal(err)
		}
		saveNext(k, vfs.On(files, root), step)
		saved = append(saved, files.Moments())
	}
	for moment := 0; moment <= files.Moments(); moment++ {
		for seed := range uint64(testlevel.Choose(2, 5)) {
			dir := t.TempDir()
			if err := files.Lose(moment, seed, dir); err != nil {
				t.Fatal(err)
			}
			least := 0
			for i, m := range saved {
				if m <= moment {
					least = i + 1
				}
			}
			k := checkpoint.NewKeeper(vfs.At(dir), 1, nil)
			step := 0
			err := k.Latest(func(f *checkpoint.File) error {
				step = f.Step
				if err := f.Verify(); err != nil {
					return err
				}
				for name, list := range values(t, f.State) {
					if !slices.Equal(list, slices.Repeat([]float32{float32(step)}, 9)) {
						t.Errorf("moment %d, seed %d: %s of step %d holds %v", moment, seed, name, step, list)
					}
				}
				return nil
			})
			if errors.Is(err, checkpoint.ErrNone) {
				err, step = nil, 0
			}
			if err != nil || step < least {
				t.Errorf("moment %d, seed %d: the newest intact checkpoint is of step %d, %v; want that of "+
					"step %d", moment, seed, step, err, least)
				continue
			}
			saveNext(k, vfs.At(dir), 9)
			for _, name := range glob(t, dir) {
				if !strings.Contains(name, "step-00000009.") &&
					!strings.HasSuffix(name, checkpoint.DamagedSuffix) {
					t.Errorf("moment %d, seed %d: %s is left", moment, seed, name)
				}
			}
		}
	}
}

// glob lists the files in dir.
func glob(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, filepath.Join(dir, e.Name()))
	}
	return list
}
