package export_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/testing/testgguf"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// TestDescription checks that an export keeps the description of the model's checkpoint.
func TestDescription(t *testing.T) {
	m := small(t, architecture.KindLlama, nil)
	m.Positions, m.Settings.Window = 131072, 4096
	m.Description = huggingface.Description{
		Config: []byte(`{"custom": 1.50, "max_position_embeddings": 131072, "dtype": "bfloat16"}`)}
	for _, generation := range []string{"", `{"temperature": 0.60}`} {
		m.Description.Generation = nil
		if generation != "" {
			m.Description.Generation = []byte(generation)
		}
		dir, _ := exported(t, "hf", m, export.Options{})
		config := string(testfile.Read(t, filepath.Join(dir, "config.json")))
		if config != "{\n  \"custom\": 1.50,\n  \"dtype\": \"float32\",\n  "+
			"\"max_position_embeddings\": 131072\n}\n" {
			t.Errorf("config.json is %s", config)
		}
		text, err := os.ReadFile(filepath.Join(dir, "generation_config.json"))
		if generation == "" && !errors.Is(err, fs.ErrNotExist) || generation != "" &&
			string(text) != generation {
			t.Errorf("generation_config.json is %s, error %v; want %s", text, err, generation)
		}
	}
	dir, report := exported(t, "gguf", m, export.Options{})
	if !slices.ContainsFunc(report.Notes,
		func(note string) bool { return strings.Contains(note, "limited to 4096 tokens") }) {
		t.Errorf("the notes are %q", report.Notes)
	}
	f := testgguf.Open(t, filepath.Join(dir, "model.gguf"))
	if got := f.Value("llama.context_length"); got != uint32(131072) {
		t.Errorf("llama.context_length is %v", got)
	}
	m.Description.Config = []byte(`[]`)
	if _, err := write(t, "hf", m, export.Options{}); err == nil ||
		!strings.Contains(err.Error(), "object") {
		t.Errorf("a list as config.json: error %v", err)
	}
}

// TestLibrary checks that the model card of each format names the library that loads it.
func TestLibrary(t *testing.T) {
	for format, want := range map[string]string{"hf": "transformers",
		"compressed-tensors": "transformers", "mlx": "mlx", "peft": "peft", "gguf": ""} {
		m := small(t, architecture.KindLlama, integers(32, halfSeventh))
		dir, _ := exported(t, format, m, export.Options{Inexact: true})
		var got string
		for line := range strings.Lines(string(testfile.Read(t, filepath.Join(dir, "README.md")))) {
			if name, ok := strings.CutPrefix(line, "library_name: "); ok {
				got = strings.TrimSpace(name)
			}
		}
		if got != want {
			t.Errorf("the card of %s names the library %q, want %q", format, got, want)
		}
	}
}

// TestWalks checks that an exact export computes Q(x) of each weight twice: to plan the export and
// to write it. What is read back is compared with a digest.
func TestWalks(t *testing.T) {
	for _, format := range []string{"hf", "compressed-tensors", "mlx", "gguf"} {
		m := small(t, architecture.KindLlama, integers(32, func(x float32) float32 {
			return halffloat.FromHalf(halffloat.ToHalf(seventh(x)))
		}))
		calls, quantized := map[string]int{}, m.Quantized
		m.Quantized = func(name string) (*export.Quantized, error) {
			q, err := quantized(name)
			if q != nil {
				calls[name]++
			}
			return q, err
		}
		if _, report := exported(t, format, m, export.Options{}); !report.Exact || len(calls) == 0 {
			t.Errorf("%s: exact is %t, with %d weights", format, report.Exact, len(calls))
		}
		for name, n := range calls {
			if n != 2 {
				t.Errorf("%s: %s is quantized %d times, want twice", format, name, n)
			}
		}
	}
}

// TestForeignTextInCard checks that no text from elsewhere leaves its place in the model card: the
// YAML header, a line, or the block with the configuration.
func TestForeignTextInCard(t *testing.T) {
	m := small(t, architecture.KindLlama, nil)
	const more = "\nevil: 1\r---\u2028evil: 2\u0085evil: 3\u202e|<img src=x>[a](b)`"
	config := "out = '````'\n```\n# evil\n"
	m.Card = export.Card{Name: "a" + more, Base: "# base_model: OWNER/b" + more, Config: config,
		Command: "cage" + more, Posttrained: "p" + more}
	m.Warnings, m.Notes = []string{"w" + more}, []string{"n" + more}
	dir, _ := exported(t, "hf", m, export.Options{})
	card := string(testfile.Read(t, filepath.Join(dir, "README.md")))
	_, text, _ := strings.Cut(card, "---\n")
	header, text, _ := strings.Cut(text, "\n---\n")
	text, block, _ := strings.Cut(text, "\n`````toml\n")
	if !strings.Contains(header, "\n# base_model: OWNER/b") || !strings.HasPrefix(block, config) ||
		!strings.HasSuffix(block, "\n`````\n") {
		t.Errorf("the card is\n%s", card)
	}
	for _, c := range "\r\u2028\u0085\u202e" {
		if strings.ContainsRune(header+text, c) {
			t.Errorf("%q is in the card", c)
		}
	}
	_, markdown, _ := strings.Cut(text, "# ")
	markdown, _, _ = strings.Cut(markdown, "Made by cage")
	if strings.Contains(header+text, "\nevil") || strings.Count(markdown, `\|\<img src=x\>\[a\]`) != 4 ||
		strings.Contains(strings.ReplaceAll(markdown, `\<`, ""), "<") {
		t.Errorf("the card is\n%s", card)
	}
}
