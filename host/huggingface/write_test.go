package huggingface_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/huggingface"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestWrite: a checkpoint that is read and written again has the same configuration, and the same bytes in every tensor.
func TestWrite(t *testing.T) {
	types := map[string]safetensors.DType{"llama32": safetensors.BF16, "llama2": safetensors.F16, "mistral": safetensors.BF16}
	for _, name := range goldenModels {
		for _, pairs := range []model.Pairing{model.Interleaved, model.HalfSplit} {
			from := open(t, filepath.Join("testdata", name), huggingface.Options{Pairs: pairs})
			dtype := types[name]
			if dtype == "" {
				dtype = safetensors.F32
			}
			dir := t.TempDir()
			if err := huggingface.Write(context.Background(), vfs.At(dir), from.Config, dtype, 100_000, from.Values); err != nil {
				t.Fatal(err)
			}
			back := open(t, dir, huggingface.Options{Pairs: pairs})
			if name == "mistral" {
				from.Config.Architecture = "LlamaForCausalLM" // which is the same network
			}
			if diff := cmp.Diff(from.Config, back.Config); diff != "" {
				t.Errorf("%s: configurations differ (-want +got):\n%s", name, diff)
			}
			sameTensors(t, name, filepath.Join("testdata", name), dir, from.Report)
		}
	}
}

func sameTensors(t *testing.T, name, a, b string, r huggingface.Report) {
	t.Helper()
	var shards [2]*safetensors.Shards
	for i, dir := range []string{a, b} {
		var err error
		if shards[i], err = safetensors.OpenShards(vfs.At(dir)); err != nil {
			t.Fatal(err)
		}
		defer shards[i].Close()
	}
	for _, x := range r.Applied {
		var data [2][]byte
		for i, s := range shards {
			tensor, err := s.Tensor(x.Tensor)
			if err == nil {
				data[i], err = tensor.Bytes()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(data[0], data[1]) {
			t.Errorf("%s: tensor %s differs", name, x.Tensor)
		}
	}
	if n := len(shards[1].Tensors()); n != len(r.Applied) {
		t.Errorf("%s: %d tensors written, want %d", name, n, len(r.Applied))
	}
}

func TestWriteRefuses(t *testing.T) {
	c := open(t, "testdata/olmo2", huggingface.Options{})
	lost := errors.New("lost")
	for name, err := range map[string]error{
		"a type": write(t, c.Config, safetensors.F64, c.Values),
		"values": write(t, c.Config, safetensors.F32, func(string) ([]float32, error) { return nil, lost }),
		"a size": write(t, c.Config, safetensors.F32, func(string) ([]float32, error) { return make([]float32, 3), nil }),
		"a kind": write(t, &huggingface.Config{Settings: model.Settings{Kind: model.KindQuadratic}}, safetensors.F32, c.Values),
	} {
		if err == nil || name == "values" && !errors.Is(err, lost) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func write(t testing.TB, c *huggingface.Config, dtype safetensors.DType, read huggingface.Read) error {
	dir := t.TempDir()
	err := huggingface.Write(context.Background(), vfs.At(dir), c, dtype, 0, read)
	if err != nil && huggingface.IsCheckpoint(vfs.At(dir)) {
		t.Error("a checkpoint was left")
	}
	return err
}
