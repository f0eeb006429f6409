package export

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/gguf"
)

// Types of tokens in GGUF.
const (
	tokenNormal  int32 = 1
	tokenUnknown int32 = 2 // for what no token holds
	tokenControl int32 = 3 // added, special
	tokenUser    int32 = 4 // added, not special
	tokenUnused  int32 = 5
	tokenByte    int32 = 6
)

// tokenizerFile is the part of a tokenizer.json that GGUF needs.
type tokenizerFile struct {
	Added []struct {
		ID      int32  `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer   json.RawMessage `json:"normalizer"`
	PreTokenizer preTokenizer    `json:"pre_tokenizer"`
	Model        struct {
		Type         string           `json:"type"`
		Vocab        map[string]int32 `json:"vocab"`
		Merges       []merge          `json:"merges"`
		IgnoreMerges bool             `json:"ignore_merges"`
		ByteFallback bool             `json:"byte_fallback"`
	} `json:"model"`
	PostProcessor json.RawMessage `json:"post_processor"`
}

// merge is "left right", or a list of both.
type merge string

func (m *merge) UnmarshalJSON(text []byte) error {
	var pair []string
	if err := json.Unmarshal(text, &pair); err == nil {
		*m = merge(strings.Join(pair, " "))
		return nil
	}
	return json.Unmarshal(text, (*string)(m))
}

// ggufTokens are the entries about the tokenizer of a model with vocab token ids. Where inexact
// is allowed, notes say why llama.cpp would find other ids in some texts.
func ggufTokens(t Tokenizer, vocab int, inexact bool) (entries []gguf.Entry, notes []string, err error) {
	var f tokenizerFile
	if err := json.Unmarshal(t.Files[tokenizer.DefinitionFile], &f); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", tokenizer.DefinitionFile, err)
	}
	if f.Model.ByteFallback {
		entries, notes, err = f.sentencePiece(t.Files[tokenizer.DefinitionFile], vocab, inexact)
	} else {
		entries, err = f.byteLevel(vocab)
	}
	return append(entries, ggufMarks(t)...), notes, err
}

// byteLevel are the entries about a byte-level tokenizer.
func (f *tokenizerFile) byteLevel(vocab int) ([]gguf.Entry, error) {
	pre, err := f.preName()
	if err != nil {
		return nil, err
	}
	tokens, types, err := f.tokens(vocab)
	if err != nil {
		return nil, err
	}
	merges := make([]string, len(f.Model.Merges))
	for i, m := range f.Model.Merges {
		merges[i] = string(m)
	}
	return []gguf.Entry{
		{Key: "tokenizer.ggml.model", Value: "gpt2"},
		{Key: "tokenizer.ggml.pre", Value: pre},
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.token_type", Value: types},
		{Key: "tokenizer.ggml.merges", Value: merges},
	}, nil
}

// ggufMarks are the entries about tokens with a meaning of their own.
func ggufMarks(t Tokenizer) []gguf.Entry {
	var entries []gguf.Entry
	if t.BOS >= 0 {
		entries = append(entries, gguf.Entry{Key: "tokenizer.ggml.bos_token_id", Value: uint32(t.BOS)})
	}
	if len(t.EOS) > 0 {
		entries = append(entries, gguf.Entry{Key: "tokenizer.ggml.eos_token_id", Value: uint32(t.EOS[0])})
	}
	if t.Pad >= 0 {
		entries = append(entries, gguf.Entry{Key: "tokenizer.ggml.padding_token_id", Value: uint32(t.Pad)})
	}
	entries = append(entries, gguf.Entry{Key: "tokenizer.ggml.add_bos_token", Value: t.AddBOS})
	if template := t.template(); template != "" {
		entries = append(entries, gguf.Entry{Key: "tokenizer.chat_template", Value: template})
	}
	return entries
}

// tokens lists the token of each id and its type.
func (f *tokenizerFile) tokens(vocab int) (tokens []string, types []int32, err error) {
	tokens, types = make([]string, vocab), make([]int32, vocab)
	for token, id := range f.Model.Vocab {
		if id < 0 || int(id) >= vocab {
			return nil, nil, fmt.Errorf("the token %q has the id %d, and the model has %d ids", token, id, vocab)
		}
		tokens[id], types[id] = token, tokenNormal
	}
	for _, a := range f.Added {
		if a.ID < 0 || int(a.ID) >= vocab {
			return nil, nil, fmt.Errorf("the token %q has the id %d, and the model has %d ids", a.Content, a.ID, vocab)
		}
		tokens[a.ID], types[a.ID] = a.Content, tokenUser
		if a.Special {
			types[a.ID] = tokenControl
		}
	}
	for id := range tokens {
		if types[id] == 0 {
			tokens[id], types[id] = fmt.Sprintf("[PAD%d]", id), tokenUnused
		}
	}
	return tokens, types, nil
}

// preTokenizer is how a text is cut before merges are applied.
type preTokenizer struct {
	Type    string         `json:"type"`
	Parts   []preTokenizer `json:"pretokenizers"`
	Pattern struct {
		Regex string `json:"Regex"`
	} `json:"pattern"`
	Behavior         string `json:"behavior"`
	Invert           bool   `json:"invert"`
	AddPrefixSpace   bool   `json:"add_prefix_space"`
	UseRegex         *bool  `json:"use_regex"` // absent: true
	IndividualDigits bool   `json:"individual_digits"`
}

// preName is the name under which llama.cpp knows the way the tokenizer cuts texts. One
// that it does not know is refused: it would give other ids.
func (f *tokenizerFile) preName() (string, error) {
	if f.Model.Type != "BPE" && f.Model.Type != "" {
		return "", fmt.Errorf("llama.cpp is given BPE tokenizers here, and this one is another: --to hf copies it as it is")
	}
	parts := f.PreTokenizer.Parts
	if f.PreTokenizer.Type != "Sequence" {
		parts = []preTokenizer{f.PreTokenizer}
	}
	if len(parts) == 0 || parts[len(parts)-1].Type != "ByteLevel" || parts[len(parts)-1].AddPrefixSpace {
		return "", errPre
	}
	last := parts[len(parts)-1]
	regex := last.UseRegex == nil || *last.UseRegex
	switch {
	case len(parts) == 1 && (regex || len(f.Model.Merges) == 0): // without merges every byte is a token
		return "gpt-2", nil
	case len(parts) == 2 && parts[0].Type == "Digits" && parts[0].IndividualDigits && regex:
		return "smollm", nil
	case len(parts) == 2 && parts[0].Type == "Split" && parts[0].Behavior == "Isolated" && !parts[0].Invert && !regex:
		return f.preOfPattern(parts[0].Pattern.Regex)
	}
	return "", errPre
}

var errPre = fmt.Errorf("llama.cpp has no name for the way this tokenizer cuts texts (pre_tokenizer): --to hf copies it as it is")

func (f *tokenizerFile) preOfPattern(pattern string) (string, error) {
	switch {
	case pattern == tokenizer.PatternQwen:
		return "qwen2", nil
	case pattern == tokenizer.PatternGPT4 && f.Model.IgnoreMerges:
		return "llama-bpe", nil
	case pattern == tokenizer.PatternGPT4:
		return "dbrx", nil
	}
	return "", errPre
}
