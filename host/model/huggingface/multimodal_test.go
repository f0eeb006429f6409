package huggingface_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// withImages writes a checkpoint of a model of text and images, made from the golden checkpoint of
// Gemma 3 with the tensor names that rename returns.
func withImages(t *testing.T, rename func(name string) string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var text map[string]jsontext.Value
	content, err := os.ReadFile("testdata/gemma3/config.json")
	if err == nil {
		err = json.Unmarshal(content, &text)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(text, "architectures")
	config, err := json.Marshal(
		map[string]any{"architectures": []string{"Gemma3ForConditionalGeneration"},
			"model_type": "gemma3", "text_config": text, "vision_config": map[string]any{"hidden_size": 8}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(vfs.At("testdata/gemma3/model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var tensors []safetensors.Tensor
	for _, info := range file.Tensors() {
		x, err := file.Tensor(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		x.Name = rename(info.Name)
		tensors = append(tensors, x)
	}
	for _, name := range []string{"vision_tower.embeddings.patch_embedding.bias",
		"multi_modal_projector.mm_soft_emb_norm.weight"} {
		x, err := safetensors.New(name, []int{2}, []float32{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, x)
	}
	if err := safetensors.WriteFile(t.Context(), vfs.At(filepath.Join(dir, "model.safetensors")),
		tensors, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTextModel checks that the text model of a model of text and images, with both forms of tensor
// names, is read like the text model alone, and that a warning counts the tensors left out.
func TestTextModel(t *testing.T) {
	alone := open(t, "testdata/gemma3", huggingface.Options{})
	for name, rename := range map[string]func(string) string{
		"published": func(name string) string { return "language_model." + name },
		"newer": func(name string) string {
			return strings.Replace(name, "model.", "model.language_model.", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, withImages(t, rename), huggingface.Options{})
			if !reflect.DeepEqual(c.Config.Settings, alone.Config.Settings) {
				t.Errorf("settings %+v, want %+v", c.Config.Settings, alone.Config.Settings)
			}
			if w := c.Config.Warnings; len(w) != 1 ||
				!strings.Contains(w[0], "2 tensors for images are left out") {
				t.Errorf("warnings %q", w)
			}
			for _, p := range alone.Params() {
				want, err := alone.Values(p.Name)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := c.Values(p.Name); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s differs, error %v", p.Name, err)
				}
			}
		})
	}
}

// TestPublishedTextModel checks that keys missing in Gemma 3 4B have the defaults of transformers.
func TestPublishedTextModel(t *testing.T) {
	dir := t.TempDir()
	const published = `{"architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106], "model_type": "gemma3",
		"text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
		"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(published), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := huggingface.ReadConfig(vfs.At(dir), 0)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Settings
	if s.Heads != 8 || s.KVHeads != 4 || s.HeadSize != 256 || s.Vocab != 262208 || s.Window != 1024 ||
		s.Head != "tied" ||
		s.RopeTheta != 1e6 || s.RopeFactor != 8 || s.LayerRope(0).RopeTheta != 1e4 ||
		c.MaxPositions != 131072 {
		t.Errorf("settings %+v", s)
	}
	if !slices.Equal(c.Tokens.End, []int32{1, 106}) {
		t.Errorf("tokens %+v", c.Tokens)
	}
}
