package huggingface_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// changed copies a checkpoint of one file and changes its tensors.
func changed(
	t testing.TB, name string, change func(tensors map[string]safetensors.Tensor),
) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	path := vfs.At(filepath.Join(dir, safetensors.SingleName))
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tensors := map[string]safetensors.Tensor{}
	for _, info := range f.Tensors() {
		if tensors[info.Name], err = f.Tensor(info.Name); err != nil {
			t.Fatal(err)
		}
	}
	change(tensors)
	var list []safetensors.Tensor
	for name, x := range tensors {
		x.Name = name
		list = append(list, x)
	}
	if err := safetensors.WriteFile(context.Background(), path, list, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// filled returns a tensor of one repeated value.
func filled(value float32, shape ...int) safetensors.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return safetensors.Lazy("", shape,
		func() ([]float32, error) { return slices.Repeat([]float32{value}, n), nil })
}

// faults returns the faults of a checkpoint, including those of its values.
func faults(t *testing.T, dir string) []string {
	t.Helper()
	c, err := huggingface.Open(vfs.At(dir), huggingface.Options{})
	if err == nil {
		defer c.Close()
		err = c.Verify()
	}
	if err == nil {
		return nil
	}
	fault, ok := errors.AsType[*huggingface.Error](err)
	if !ok {
		t.Fatalf("error %v", err)
	}
	if fault.Path != dir {
		t.Errorf("the error is about %q, want %q", fault.Path, dir)
	}
	return fault.Faults
}

// TestFaults checks that one error lists all faults of a checkpoint, sorted.
func TestFaults(t *testing.T) {
	const layer = "model.layers.0."
	type tensors = map[string]safetensors.Tensor
	for name, test := range map[string]struct {
		model  string
		change func(tensors)
		want   []string
	}{
		"nothing": {"llama2", func(tensors) {}, nil},
		"missing, unused, of other shapes and types": {"llama2", func(x tensors) {
			delete(x, "model.norm.weight")
			delete(x, "lm_head.weight")
			x[layer+"self_attn.q_proj.bias"] = filled(0, 64)
			x[layer+"self_attn.k_proj.weight"] = filled(0, 32, 64)
			x[layer+"mlp.up_proj.weight"] = safetensors.Tensor{DType: safetensors.F8E4M3,
				Shape: []int{96, 64}, Write: func(w io.Writer) error {
					_, err := w.Write(make([]byte, 96*64))
					return err
				}}
			x["model.layers.2.mlp.up_proj.weight"] = filled(0, 96, 64)
		}, []string{
			"tensor lm_head.weight: missing",
			"tensor model.layers.0.mlp.up_proj.weight: type F8_E4M3, want F32, BF16 or F16",
			"tensor model.layers.0.self_attn.k_proj.weight: found shape [32 64], want [64 64]",
			"tensor model.layers.0.self_attn.q_proj.bias: not in the model",
			"tensor model.layers.2.mlp.up_proj.weight: not in the model",
			"tensor model.norm.weight: missing",
		}},
		"values that are not finite": {"llama2", func(x tensors) {
			x["model.norm.weight"] = filled(float32(math.NaN()), 64)
			x[layer+"self_attn.v_proj.weight"] = filled(float32(math.Inf(-1)), 64, 64)
		}, []string{
			"tensor model.layers.0.self_attn.v_proj.weight: 4096 of 4096 values are NaN or infinite",
			"tensor model.norm.weight: 64 of 64 values are NaN or infinite",
		}},
		"a tied head that is there, too": {"llama32",
			func(x tensors) { x["lm_head.weight"] = x["model.embed_tokens.weight"] }, nil},
		"a tied head alone": {"llama32", func(x tensors) {
			x["lm_head.weight"] = x["model.embed_tokens.weight"]
			delete(x, "model.embed_tokens.weight")
		}, nil},
		"a tied head that differs": {"llama32",
			func(x tensors) { x["lm_head.weight"] = filled(0.5, 328, 64) },
			[]string{"tensor lm_head.weight: 20992 values differ from the embedding, but config.json says " +
				"tie_word_embeddings"}},
		"a tied head of another shape": {"llama32",
			func(x tensors) { x["lm_head.weight"] = filled(0.5, 320, 64) },
			[]string{"tensor lm_head.weight: found shape [320 64], want [328 64]"}},
	} {
		if diff := cmp.Diff(test.want, faults(t, changed(t, test.model, test.change))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFaultsOfFiles checks that faults of configuration and weights are reported together.
func TestFaultsOfFiles(t *testing.T) {
	copied := func(name string) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	truncated := copied("sharded")
	if err := os.Truncate(filepath.Join(truncated, "model-00002-of-00003.safetensors"),
		5000); err != nil {
		t.Fatal(err)
	}
	both := copied("sharded")
	write(both, "config.json", `{"architectures":["X"],"model_type":"x"}`)
	write(both, safetensors.IndexName, `{"weight_map":{"a":"../x"}}`)
	lost := copied("sharded")
	if err := os.Remove(filepath.Join(lost, "model-00003-of-00003.safetensors")); err != nil {
		t.Fatal(err)
	}
	pickled := copied("llama2")
	if err := os.Rename(filepath.Join(pickled, safetensors.SingleName),
		filepath.Join(pickled, "pytorch_model.bin")); err != nil {
		t.Fatal(err)
	}
	huge := copied("llama2")
	if err := os.Truncate(filepath.Join(huge, "config.json"), 16<<20+1); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dir string
		say []string
	}{
		"a shard that lost its end": {truncated, []string{"model-00002-of-00003.safetensors"}},
		"a shard that is lost":      {lost, []string{"no file model-00003-of-00003.safetensors"}},
		"configuration and index both": {both,
			[]string{`config.json: architectures: found ["X"]`, "config.json: hidden_size: missing",
				`the file "../x"`}},
		"weights of another format": {pickled, []string{"convert pytorch_model.bin to safetensors"}},
	} {
		text := strings.Join(faults(t, test.dir), "\n")
		for _, say := range test.say {
			if !strings.Contains(text, say) {
				t.Errorf("%s: faults\n%s\ndo not say %s", name, text, say)
			}
		}
	}
	if _, err := huggingface.Open(vfs.At(huge), huggingface.Options{}); err == nil ||
		!strings.HasSuffix(err.Error(), "config.json is too large: want at most 16777216 bytes") {
		t.Errorf("a configuration of 16 MiB: error %v", err)
	}
	if _, err := huggingface.Open(vfs.At(t.TempDir()), huggingface.Options{}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("empty directory: error %v", err)
	}
}

// TestReport checks that every tensor is classified.
func TestReport(t *testing.T) {
	r := open(t, "testdata/llama2", huggingface.Options{}).Report
	ignored := []string{"model.layers.0.self_attn.rotary_emb.inv_freq",
		"model.layers.1.self_attn.rotary_emb.inv_freq"}
	if len(r.Applied) != 21 || len(r.Missing)+len(r.Unused)+len(r.Mismatched) > 0 ||
		!slices.Equal(r.Ignored, ignored) {
		t.Errorf("report %+v", r)
	}
	want := huggingface.Applied{Tensor: "model.layers.1.self_attn.k_proj.weight", Type: "F16",
		Shape: []int{64, 64}, Parameter: "layers.1.attn.qkv"}
	if !slices.ContainsFunc(r.Applied,
		func(a huggingface.Applied) bool { return cmp.Equal(a, want) }) {
		t.Errorf("%+v is not among %+v", want, r.Applied)
	}
}

// TestParts checks the names of the files and the lengths of their digests.
func TestParts(t *testing.T) {
	parts, err := open(t, "testdata/sharded", huggingface.Options{}).Parts()
	if err != nil || len(parts) != 4 || parts[0].File != "config.json" || len(parts[3].SHA256) != 64 {
		t.Errorf("%v, error %v", parts, err)
	}
}
