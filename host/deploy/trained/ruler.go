package trained

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/internal/vfs"
)

// RulerName returns the name under which the answers of the model in dir are stored.
func RulerName(dir string, m *Model, batch int) ruler.ModelName {
	identity := m.Identity()
	if identity == "" {
		sum := sha256.Sum256([]byte(checkpointName(dir)))
		identity = hex.EncodeToString(sum[:16])
	}
	return ruler.ModelName{Name: fmt.Sprintf("%s, step %d", dir, m.Step()),
		Identity: withQuantizers(identity, m), Batch: batch}
}

// Ruler returns a function that answers prompts greedily. If the tokenizer adds BOS, prompts begin
// with it, unless a chat template has already written it (templated).
func Ruler(m *Model, tok tokenizer.Tokenizer, templated bool) ruler.Model {
	return func(ctx context.Context, prompts []string, newTokens int) ([]string, error) {
		var all [][]int32
		for _, p := range prompts {
			ids, err := tok.Encode(p)
			if err != nil {
				return nil, err
			}
			if tokenizer.AddsBOS(tok) && !templated {
				ids = append([]int32{tok.Info().BOS}, ids...)
			}
			all = append(all, ids)
		}
		return m.ContinueAll(ctx, tok, all, generate.Options{Tokens: newTokens})
	}
}

// withQuantizers appends the digest of the model's quantizers to name, if anything is quantized.
func withQuantizers(name string, model *Model) string {
	if programs := model.Quantizers(); programs != "" {
		name += ", programs " + programs
	}
	return name
}

// checkpointName identifies a Hugging Face checkpoint, and changes if its files are replaced.
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
	// Settings that affect the computation or the end of texts; prompts are stored with the answers.
	for _, f := range []string{huggingface.ConfigName, tokenizer.GenerationFile} {
		if text, err := vfs.ReadRegular(filepath.Join(dir, f)); err == nil {
			name += fmt.Sprintf(" %s:%x", f, sha256.Sum256(text))
		}
	}
	return name
}
