package study

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestDocumentedStudy checks that the study file in docs/guide/studies.md can be parsed.
func TestDocumentedStudy(t *testing.T) {
	text, err := os.ReadFile("../../docs/guide/studies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```toml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/guide/studies.md shows no TOML file")
	}
	path, err := filepath.Abs("../../examples/bits.toml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	s := parsed(t, path, example)
	if len(s.Cells) != 2*3*3+3 || len(s.Tables) != 1 || len(s.Figures) != 1 {
		t.Errorf("%d cells, %d tables, %d figures", len(s.Cells), len(s.Tables), len(s.Figures))
	}
}

// TestPaperStudies checks that the studies in examples/paper can be loaded and have the expected
// cells, names and output directories.
func TestPaperStudies(t *testing.T) {
	testlevel.Long(t, "reads every study of the paper")
	want := map[string]int{
		"toy": 16, "quadratic": 180,
		"main": 6*3*2*2*3 - 2*2*2*2*3 + 6, "main-small": 4 * (2*3*2*2 + 2),
		"effect":   3*5*20 + 3*3*2*20 + 2*20,
		"ablation": 7*7 + 1, "ablation-small": 4 * (3*4 + 1),
		"forms": 3 * 2 * 4 * 3, "optimizers": 8, "optimizers-small": 4 * 2 * 8,
		"finetune": 2*5*3 + 3, "ruler": 6, "tasks-small": 2*4*3 + 2*3,
		"lotion": 3, "lotion-small": 3 * 8, "schedule-small": 2 * 4, "precision-small": (3 + 2) * 8,
		"fully-quantized": 6 * 3, "scaling-small": 3 * 2 * 5 * 2,
	}
	folder, err := filepath.Abs("../../examples/paper")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.toml"))
	if err != nil {
		t.Fatal(err)
	}
	standIn(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".toml")
		if name == "small" || name == "llama" {
			continue // bases
		}
		s, err := Load(file)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if len(s.Cells) != want[name] {
			t.Errorf("%s has %d cells, want %d", name, len(s.Cells), want[name])
		}
		if s.Name != name || s.Out != "studies/"+name {
			t.Errorf("%s is named %s, in %s", name, s.Name, s.Out)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("there is no examples/paper/%s.toml", name)
	}
}

// standIn changes to a directory with the config.json files of the models that studies fine-tune.
// The files have the sizes of the real models.
func standIn(t *testing.T) {
	t.Helper()
	const config = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 3072, "intermediate_size": 8192,
		"num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
		"max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true, "hidden_act": "silu",
		"rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}`
	large := strings.NewReplacer("3072", "4096", ": 8192, ", ": 14336, ", ": 28, ", ": 32, ",
		`heads": 24`, `heads": 32`, ": 32.0", ": 8.0", ": true", ": false").Replace(config)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"Llama-3.2-3B": config, "Llama-3.1-8B": large} {
		write(t, filepath.Join("models", name, "config.json"), text)
	}
}

// BenchmarkLoad loads a study of 1,000 cells.
func BenchmarkLoad(b *testing.B) {
	in(b, strings.Replace(small, "[0, 1]", "["+strings.TrimSuffix(numbersTo(250), ",")+"]", 1))
	for b.Loop() {
		s, err := Load("small.toml")
		if err != nil || len(s.Cells) != 1000 {
			b.Fatalf("%v", err)
		}
	}
}

func numbersTo(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strconv.Itoa(i) + ",")
	}
	return b.String()
}
