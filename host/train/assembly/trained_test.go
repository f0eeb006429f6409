package assembly_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
)

// TestBeginning: a begin token that the tokenizer puts before no text is used where the model has learned from documents
// with it, and where there is no text at all.
func TestBeginning(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tokenizer.json": `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"s":2},"merges":[]}}`, "tokenizer_config.json": `{"bos_token": "s"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	named, err := tokenizer.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	learned, talks := &config.Config{}, &config.Config{}
	learned.Data.Kind, talks.Data.Kind = config.KindText, config.KindChat
	published := learned.WithoutTraining("elsewhere")
	for name, c := range map[string]struct {
		cfg  *config.Config
		text string
		want []int32
	}{
		"learned": {learned, "ab", []int32{2, 0, 1}}, "from conversations": {talks, "ab", []int32{0, 1}},
		"published": {published, "ab", []int32{0, 1}}, "nothing": {published, "", []int32{2}},
	} {
		if got, err := assembly.Beginning(c.cfg, named, c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v: %v", name, got, c.want, err)
		}
	}
}
