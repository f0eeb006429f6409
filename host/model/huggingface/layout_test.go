package huggingface_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/testing/testhub"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestLayout checks that a checkpoint that is read, and written again as Layout and Describe
// define, has the same configuration and the same bytes in every tensor.
func TestLayout(t *testing.T) {
	testlevel.Long(t, "every kind of checkpoint, written again")
	types := map[string]safetensors.DType{"llama32": safetensors.BF16, "llama2": safetensors.F16,
		"mistral": safetensors.BF16}
	for _, name := range goldenModels {
		for _, pairs := range []architecture.Pairing{architecture.Interleaved, architecture.HalfSplit} {
			from := open(t, filepath.Join("testdata", name), huggingface.Options{Pairs: pairs})
			dtype := types[name]
			if dtype == "" {
				dtype = safetensors.F32
			}
			dir := t.TempDir()
			testhub.Write(t, dir, from.Config, dtype, 100_000, from.Values)
			from.Config.OtherWindow = 0 // only a checkpoint's own description has it
			back := open(t, dir, huggingface.Options{Pairs: pairs})
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

// TestNoLayout checks that models without a Hugging Face architecture are refused.
func TestNoLayout(t *testing.T) {
	s := architecture.Settings{Kind: architecture.KindQuadratic}
	if _, err := huggingface.Layout(s); err == nil {
		t.Error("there is a layout of quadratics")
	}
	c := huggingface.Config{Settings: s}
	if _, err := c.Describe(); err == nil {
		t.Error("there is a config.json of quadratics")
	}
}
