package safetensors_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// sharded writes four tensors of 4, 8, 0 and 3 bytes.
func sharded(t testing.TB, limit int64) (dir string, tensors []safetensors.Tensor) {
	t.Helper()
	dir = t.TempDir()
	tensors = []safetensors.Tensor{
		tensor[float32](t, "a", []int{1}, 1),
		tensor[float32](t, "b", []int{2}, 2, 3),
		tensor[float32](t, "c", []int{0}),
		raw("d", "F4", []int{3, 2}, 1, 2, 3),
	}
	if err := safetensors.WriteShards(context.Background(), vfs.At(dir), tensors,
		map[string]string{"format": "pt"}, limit); err != nil {
		t.Fatal(err)
	}
	return dir, tensors
}

func names(t testing.TB, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestShards(t *testing.T) {
	two := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
		"model.safetensors.index.json"}
	three := []string{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
		"model-00003-of-00003.safetensors", "model.safetensors.index.json"}
	for limit, want := range map[int64][]string{0: {"model.safetensors"}, 15: {"model.safetensors"},
		12: two, 14: two, 8: three} {
		dir, tensors := sharded(t, limit)
		if got := names(t, dir); !slices.Equal(got, want) {
			t.Errorf("limit %d: files %v, want %v", limit, got, want)
		}
		s, err := safetensors.OpenShards(vfs.At(dir))
		if err != nil {
			t.Errorf("limit %d: %v", limit, err)
			continue
		}
		defer s.Close()
		var got []safetensors.Tensor
		for _, info := range s.Tensors() {
			x, err := s.Tensor(info.Name)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, x)
		}
		if diff := cmp.Diff(load(t, tensors), load(t, got)); diff != "" {
			t.Errorf("limit %d: tensors differ (-want +got):\n%s", limit, diff)
		}
		if _, err := s.Tensor("absent"); err == nil {
			t.Errorf("limit %d: an absent tensor is read", limit)
		}
	}
}

func TestSingleFileWins(t *testing.T) {
	dir, tensors := sharded(t, 8)
	if err := safetensors.WriteFile(context.Background(),
		vfs.At(filepath.Join(dir, safetensors.SingleName)), tensors[:1], nil); err != nil {
		t.Fatal(err)
	}
	s, err := safetensors.OpenShards(vfs.At(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Names(); !slices.Equal(got, []string{safetensors.SingleName}) ||
		len(s.Tensors()) != 1 {
		t.Errorf("opened %v with %d tensors", got, len(s.Tensors()))
	}
}

func TestWriteShardsRefuses(t *testing.T) {
	x := tensor[float32](t, "a", []int{1}, 1)
	for name, test := range map[string]struct {
		tensors []safetensors.Tensor
		say     string
	}{
		"the same name in two shards": {[]safetensors.Tensor{x, x}, `two tensors "a"`},
		"an unknown type":             {[]safetensors.Tensor{raw("a", "F3", nil)}, `"F3"`},
	} {
		err := safetensors.WriteShards(context.Background(), vfs.At(t.TempDir()), test.tensors, nil, 4)
		if err == nil || !strings.Contains(err.Error(), test.say) {
			t.Errorf("%s: error %v, want one that says %s", name, err, test.say)
		}
	}
}

func TestOpenShardsRefuses(t *testing.T) {
	const one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	tests := map[string]struct {
		index string
		say   []string
	}{
		"no object":      {`[]`, []string{"index"}},
		"cut":            {`{"weight_map":{`, []string{"index"}},
		"no map":         {`{"metadata":{}}`, []string{"has no weight_map"}},
		"map of numbers": {`{"weight_map":{"a":1}}`, []string{"weight_map"}},
		"tensor twice": {`{"weight_map":{"a":"x","a":"y"}}`,
			[]string{"weight_map.a: duplicate key"}},
		"names with paths": {
			`{"weight_map":{"a":"../x","b":"/etc/passwd","c":"d/e","d":"","e":"..","f":"C:x","g":"d\\e","h":"."}}`, []string{`"../x"`, `"/etc/passwd"`, `"d/e"`, `""`, `".."`, `"C:x"`, `"d\\e"`, `"."`}},
		"no such file": {`{"weight_map":{"a":"absent","b":"` + one + `"}}`,
			[]string{"no file absent", `has the tensor "a", which weight_map assigns to absent`}},
		"file of another sort": {`{"weight_map":{"a":"` + safetensors.IndexName + `"}}`,
			[]string{"malformed"}},
		"tensor elsewhere": {`{"weight_map":{"a":"` + two + `","b":"` + one + `","c":"` + one +
			`","d":"` + two + `"}}`,
			[]string{two + ` lacks the tensor "a"`,
				one + ` has the tensor "a", which weight_map assigns to ` + two}},
		"tensor not in a map": {`{"weight_map":{"a":"` + one + `","b":"` + one + `","d":"` + two + `"}}`,
			[]string{`has the tensor "c", which is not in weight_map`}},
		"tensor not in a file": {`{"weight_map":{"a":"` + one + `","b":"` + one + `","c":"` + one +
			`","d":"` + two + `","e":"` + two + `"}}`, []string{two + ` lacks the tensor "e"`}},
	}
	for name, test := range tests {
		dir, _ := sharded(t, 12)
		if err := os.WriteFile(filepath.Join(dir, safetensors.IndexName), []byte(test.index),
			0o644); err != nil {
			t.Fatal(err)
		}
		_, err := safetensors.OpenShards(vfs.At(dir))
		if !errors.Is(err, safetensors.ErrFormat) {
			t.Errorf("%s: error %v, want ErrFormat", name, err)
			continue
		}
		for _, say := range test.say {
			if !strings.Contains(err.Error(), say) {
				t.Errorf("%s: error %q does not say %s", name, err, say)
			}
		}
	}
	if _, err := safetensors.OpenShards(vfs.At(t.TempDir())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty directory: error %v, want fs.ErrNotExist", err)
	}
}

// TestTruncatedShard checks that the error names a truncated shard.
func TestTruncatedShard(t *testing.T) {
	dir, _ := sharded(t, 8)
	path := filepath.Join(dir, "model-00002-of-00003.safetensors")
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := safetensors.OpenShards(vfs.At(dir)); !errors.Is(err, safetensors.ErrFormat) ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want ErrFormat with %s", err, path)
	}
}

// FuzzIndex checks arbitrary indexes beside two valid files: none may cause a panic or open a file
// in another directory, and all tensors of an accepted index must exist.
func FuzzIndex(f *testing.F) {
	dir, _ := sharded(f, 12)
	path := filepath.Join(dir, safetensors.IndexName)
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"weight_map":{"a":"../x","b":"model-00001-of-00002.safetensors"}}`))
	f.Add([]byte(`{"metadata":null,"weight_map":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := safetensors.OpenShards(vfs.At(dir))
		if err != nil {
			if !errors.Is(err, safetensors.ErrFormat) {
				t.Fatalf("error %v, want ErrFormat", err)
			}
			return
		}
		defer s.Close()
		for _, name := range s.Names() {
			if filepath.Base(name) != name {
				t.Fatalf("the file %q was opened", name)
			}
		}
		for _, info := range s.Tensors() {
			if _, err := s.Tensor(info.Name); err != nil {
				t.Fatal(err)
			}
		}
	})
}
