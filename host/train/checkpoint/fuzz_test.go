package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/vfs"
)

// FuzzLoad: a file is a checkpoint as it was saved, or damaged, and the error names it.
// Reading all its tensors and verifying it agree.
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
		if (err == nil) != (readErr == nil) || readErr != nil && (!errors.Is(readErr, checkpoint.ErrDamaged) || !strings.Contains(readErr.Error(), path.Name)) {
			t.Fatalf("verifying says %v, reading %v", err, readErr)
		}
		if len(f.Infos()) != len(f.Tensors) || f.Size() != int64(len(content)) {
			t.Fatalf("%d infos of %d tensors, %d bytes of %d", len(f.Infos()), len(f.Tensors), f.Size(), len(content))
		}
	})
}

// FuzzMetadata: whatever the metadata of an intact file holds, it is a checkpoint of the
// step that its name says, or damaged.
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
