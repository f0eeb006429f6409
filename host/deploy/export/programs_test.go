package export_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// mlxFields lists the fields of the classes of mlx-lm 0.32.2 (ModelArgs in mlx_lm/models/*.py) that
// change what is computed, by model_type, after those of all classes.
var mlxFields = map[string]string{
	"": "hidden_size num_hidden_layers intermediate_size num_attention_heads rms_norm_eps " +
		"vocab_size num_key_value_heads rope_theta",
	"llama":   mlxLlama,
	"mistral": mlxLlama + " sliding_window",
	"granite": "logits_scaling attention_multiplier embedding_multiplier residual_multiplier " +
		"max_position_embeddings attention_bias mlp_bias rope_scaling tie_word_embeddings",
	"smollm3": mlxLlama + " no_rope_layer_interval no_rope_layers",
	"olmo2": "head_dim max_position_embeddings attention_bias mlp_bias rope_traditional " +
		"rope_scaling tie_word_embeddings",
	"olmo3": "max_position_embeddings sliding_window attention_bias layer_types head_dim " +
		"rope_scaling tie_word_embeddings",
	"qwen2": "max_position_embeddings rope_traditional rope_scaling tie_word_embeddings",
	"qwen3": "max_position_embeddings head_dim tie_word_embeddings rope_scaling rope_parameters",
	"gemma": "head_dim rope_traditional",
	"gemma2": "head_dim rope_traditional attn_logit_softcapping final_logit_softcapping " +
		"query_pre_attn_scalar",
	"gemma3_text": "head_dim rope_local_base_freq query_pre_attn_scalar sliding_window " +
		"sliding_window_pattern max_position_embeddings rope_scaling",
}

const mlxLlama = "head_dim max_position_embeddings attention_bias mlp_bias rope_traditional " +
	"rope_scaling tie_word_embeddings layer_types"

// TestNothingByDefault checks that config.json has all that mlx-lm would otherwise take from the
// defaults of a class.
func TestNothingByDefault(t *testing.T) {
	for _, kind := range append(architecture.Languages, "mistral") {
		s := architecture.Settings{Kind: kind, Layers: 6}
		switch kind {
		case architecture.KindGemma:
			s.Head = "tied"
		case architecture.KindGemma2:
			s.Head, s.ScoreCap, s.LogitCap = "tied", 5, 3
		case "mistral":
			s.Kind, s.Window = architecture.KindLlama, 5
		}
		dir, _ := exported(t, "mlx", smallOf(t, s, integers(32, halfSeventh)), export.Options{})
		var config map[string]any
		testfile.ReadJSON(t, filepath.Join(dir, "config.json"), &config)
		fields := mlxFields[config["model_type"].(string)]
		for _, field := range strings.Fields(mlxFields[""] + " " + fields) {
			if _, ok := config[field]; !ok || fields == "" {
				t.Errorf("%s: there is no %s", kind, field)
			}
		}
	}
}

// TestNotComputed checks that what a program does not compute is refused, and what it computes
// otherwise in long sequences only is told.
func TestNotComputed(t *testing.T) {
	type settings = architecture.Settings
	for _, c := range []struct {
		format string
		s      settings
		error  string
		note   string
	}{
		{"mlx", settings{Kind: "gemma"}, "an output head of its own", ""},
		{"mlx", settings{Kind: "gemma", Head: "tied", RopeFactor: 2}, "scaled positions", ""},
		{"mlx", settings{Kind: "gemma", Head: "tied"}, "", "GELU without its approximation by tanh"},
		{"hf", settings{Kind: "gemma", Width: 66, Hidden: 64, HeadSize: 16}, "", ""},
		{"mlx", settings{Kind: "gemma2"}, "an output head of its own, nor with scores or logits", ""},
		{"mlx", settings{Kind: "gemma2", Head: "tied", ScoreCap: 5, LogitCap: 3, RopeFactor: 2},
			"scaled positions", ""},
		{"mlx", settings{Kind: "gemma2", Head: "tied", ScoreCap: 5, LogitCap: 3, Window: 5}, "",
			"limited to 5 tokens (sliding_window), but not in mlx-lm"},
		{"mlx", settings{Kind: "gemma3", Layers: 5}, "windows in all layers", ""},
		{"mlx", settings{Kind: "gemma3", Layers: 6, Window: 5}, "", ""},
		{"mlx", settings{Kind: "gemma3", Layers: 6, Width: 96}, "", "9.8125 instead of 9.797959"},
		{"mlx", settings{Kind: "olmo3", Layers: 3}, "windows in all layers", ""},
		{"mlx", settings{Kind: "qwen2", HeadSize: 32}, "a head size other than width/heads = 16", ""},
		{"mlx", settings{Kind: "granite", HeadSize: 32}, "a head size other than width/heads = 16", ""},
		{"mlx", settings{Kind: "llama", Window: 5}, "", "limited to 5 tokens"},
		{"mlx", settings{Kind: "llama", Window: 16}, "", ""}, // the context
		{"gguf", settings{Kind: "llama", Window: 5}, "", "limited to 5 tokens"},
		{"gguf", settings{Kind: "olmo3", Window: 5}, "", ""},
		{"hf", settings{Kind: "llama", Window: 5}, "", ""},
		{"hf", settings{Kind: "gemma3", AttentionMultiplier: 0.3}, "attention_multiplier = 0.3", ""},
		{"compressed-tensors", settings{Kind: "gemma3", Width: 66, Hidden: 64, HeadSize: 16},
			"a width that is no multiple of heads", ""},
	} {
		m := smallOf(t, c.s, integers(32, halfSeventh))
		r, err := write(t, c.format, m, export.Options{})
		switch {
		case c.error != "":
			if err == nil || !strings.Contains(err.Error(), c.error) {
				t.Errorf("%s, %+v: error %v, want %q", c.format, c.s, err, c.error)
			}
		case err != nil:
			t.Errorf("%s, %+v: %v", c.format, c.s, err)
		case !strings.Contains(strings.Join(r.Notes, "\n"), c.note) || (c.note == "") != (r.Notes == nil):
			t.Errorf("%s, %+v: notes %q, want %q", c.format, c.s, r.Notes, c.note)
		}
	}
	// Qwen's window of longer sequences than those of the run.
	m := small(t, architecture.KindQwen2, integers(32, halfSeventh))
	m.Positions, m.OtherWindow = 512, 64
	for format, want := range map[string]int{"hf": 0, "mlx": 1, "gguf": 1} {
		if _, r := exported(t, format, m, export.Options{}); len(r.Notes) != want {
			t.Errorf("%s: the notes are %q, want %d", format, r.Notes, want)
		}
	}
}

// TestMinistralInMLX checks that mlx-lm, which has no class of that name, is told of a Mistral.
func TestMinistralInMLX(t *testing.T) {
	m := smallOf(t, architecture.Settings{Kind: architecture.KindLlama}, integers(32, halfSeventh))
	m.Description.Config = []byte(`{"model_type": "ministral", "sliding_window": 16}`)
	for format, want := range map[string]string{"mlx": "mistral", "hf": "ministral"} {
		dir, _ := exported(t, format, m, export.Options{})
		var config map[string]any
		testfile.ReadJSON(t, filepath.Join(dir, "config.json"), &config)
		if config["model_type"] != want {
			t.Errorf("%s: model_type is %v, want %s", format, config["model_type"], want)
		}
	}
}
