package export

import (
	"fmt"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/gguf"
)

// sentencePiece are the entries about a tokenizer as that of Llama 2, in llama.cpp's own form
// for SentencePiece models. The keys and types are those that its converter writes; the scores
// are the ranks of merges, since a tokenizer.json has no others.
func (f *tokenizerFile) sentencePiece(definition []byte, vocab int, inexact bool) (entries []gguf.Entry, notes []string, err error) {
	t, err := tokenizer.ParseHuggingFace(definition)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", tokenizer.DefinitionFile, err)
	}
	tokens, types, err := f.tokens(vocab) // which checks that no id is too large
	if err != nil {
		return nil, nil, err
	}
	s, err := t.SentencePiece()
	if err != nil {
		return nil, nil, fmt.Errorf("llama.cpp has no form for this tokenizer: %w: --to hf copies it as it is", err)
	}
	if notes, err = otherIDs(s.Differs, inexact); err != nil {
		return nil, nil, err
	}
	for id, token := range tokens {
		if types[id] == tokenNormal && isByte(token) {
			types[id] = tokenByte
		}
	}
	entries = []gguf.Entry{
		{Key: "tokenizer.ggml.model", Value: "llama"},
		{Key: "tokenizer.ggml.pre", Value: "default"},
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.scores", Value: append(s.Scores, make([]float32, vocab-len(s.Scores))...)},
		{Key: "tokenizer.ggml.token_type", Value: types},
		{Key: "tokenizer.ggml.add_space_prefix", Value: s.Prefix},
	}
	if s.Unknown != tokenizer.NoToken {
		types[s.Unknown] = tokenUnknown
		entries = append(entries, gguf.Entry{Key: "tokenizer.ggml.unknown_token_id", Value: uint32(s.Unknown)})
	}
	return entries, notes, nil
}

// isByte tells whether a token stands for a byte: <0x00> to <0xFF>.
func isByte(token string) bool {
	var value byte
	n, err := fmt.Sscanf(token, "<0x%02X>", &value)
	return err == nil && n == 1 && token == fmt.Sprintf("<0x%02X>", value)
}
