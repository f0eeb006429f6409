package query

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/generate"
)

// RulerName is what answers to RULER's prompts say of the model in dir.
func RulerName(dir string, m *trained.Model, batch int) ruler.ModelName {
	name := ruler.ModelName{Name: fmt.Sprintf("%s, step %d", dir, m.Step()), Identity: m.Identity(), Batch: batch}
	if name.Identity == "" {
		sum := sha256.Sum256([]byte(checkpointName(dir)))
		name.Identity = hex.EncodeToString(sum[:16])
	}
	name.Identity = withQuantizers(name.Identity, m)
	return name
}

// Ruler lets a model answer with the likeliest tokens. A prompt begins a document, unless
// a template has printed how one begins.
func Ruler(m *trained.Model, tok tokenizer.Tokenizer, templated bool) ruler.Model {
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
