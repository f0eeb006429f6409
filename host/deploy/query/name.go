package query

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/internal/regular"
)

// withQuantizers is the name of a model with the digest of its quantizers, if it has any.
func withQuantizers(name string, model *trained.Model) string {
	if programs := model.Quantizers(); programs != "" {
		name += ", programs " + programs
	}
	return name
}

// checkpointName tells a Hugging Face checkpoint from others, and from another one in its place.
func checkpointName(dir string) string {
	name := dir
	if abs, err := filepath.Abs(dir); err == nil {
		name = abs
	}
	files, _ := fs.Glob(os.DirFS(dir), "*.safetensors") // the pattern is well-formed
	for _, f := range files {
		if stat, err := os.Stat(filepath.Join(dir, f)); err == nil {
			name += fmt.Sprintf(" %s:%d:%d", stat.Name(), stat.Size(), stat.ModTime().UnixNano())
		}
	}
	// What computes with the weights, and what ends a text; the prompts are kept with the answers.
	for _, f := range []string{huggingface.ConfigName, tokenizer.GenerationFile} {
		if text, err := regular.ReadFile(filepath.Join(dir, f)); err == nil {
			name += fmt.Sprintf(" %s:%x", f, sha256.Sum256(text))
		}
	}
	return name
}
