package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plainjson"
)

// GGUF's token types.
const (
	tokenNormal  int32 = 1
	tokenUnknown int32 = 2 // for characters that no token has
	tokenControl int32 = 3 // added, special
	tokenUser    int32 = 4 // added, not special
	tokenUnused  int32 = 5
	tokenByte    int32 = 6
)

type tokenizerFile struct {
	Added []struct {
		ID         int32  `json:"id"`
		Content    string `json:"content"`
		Special    bool   `json:"special"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		SingleWord bool   `json:"single_word"`
	} `json:"added_tokens"`
	Normalizer   *normalizer  `json:"normalizer"`
	PreTokenizer preTokenizer `json:"pre_tokenizer"`
	Model        struct {
		Type         string           `json:"type"`
		Vocab        map[string]int32 `json:"vocab"`
		Merges       []merge          `json:"merges"`
		IgnoreMerges bool             `json:"ignore_merges"`
		ByteFallback bool             `json:"byte_fallback"`
	} `json:"model"`
}

type normalizer struct {
	Type  string       `json:"type"`
	Parts []normalizer `json:"normalizers"` // of the type Sequence
}

// merge is "left right"; in JSON it may also be a list of both parts.
type merge string

func (m *merge) UnmarshalJSON(text []byte) error {
	var pair []string
	if err := json.Unmarshal(text, &pair); err == nil {
		*m = merge(strings.Join(pair, " "))
		return nil
	}
	return plainjson.UnmarshalPart(text, (*string)(m))
}

// ggufTokens returns the tokenizer metadata of a model with vocab token ids. If inexact is set,
// notes explains why llama.cpp would return other ids for some texts.
func ggufTokens(
	t Tokenizer, vocab int, inexact bool,
) (entries []gguf.Entry, notes []string, err error) {
	f, err := t.definition()
	if err != nil {
		return nil, nil, err
	}
	if f.Model.ByteFallback {
		entries, notes, err = f.sentencePiece(t.Files[tokenizer.DefinitionFile], vocab, inexact)
	} else {
		entries, notes, err = f.byteLevel(vocab, inexact)
	}
	if err != nil {
		return nil, nil, err
	}
	special, more, err := ggufSpecialTokens(t)
	return append(entries, special...), append(notes, more...), err
}

func (f *tokenizerFile) byteLevel(
	vocab int, inexact bool,
) (entries []gguf.Entry, notes []string, err error) {
	pre, err := f.preName()
	if err != nil {
		return nil, nil, err
	}
	tokens, types := f.tokens(vocab)
	if notes, err = otherIDs(f.differences(pre), inexact); err != nil {
		return nil, nil, err
	}
	if f.Normalizer.is("NFC") {
		notes = append(notes, "llama.cpp does not apply the normalizer NFC: texts with decomposed "+
			"characters get other ids")
	}
	merges := lists.Map(f.Model.Merges, func(m merge) string { return string(m) })
	return []gguf.Entry{
		{Key: "tokenizer.ggml.model", Value: "gpt2"},
		{Key: "tokenizer.ggml.pre", Value: pre},
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.token_type", Value: types},
		{Key: "tokenizer.ggml.merges", Value: merges},
	}, notes, nil
}

func (n *normalizer) is(name string) bool {
	return n != nil && (n.Type == name ||
		n.Type == "Sequence" && len(n.Parts) == 1 && n.Parts[0].is(name))
}

// differences lists the reasons why llama.cpp returns other ids than a byte-level tokenizer for
// some texts. It does not list that llama.cpp skips NFC normalization, because Qwen's tokenizers
// are used with llama.cpp nevertheless.
func (f *tokenizerFile) differences(pre string) (list []string) {
	if n := f.Normalizer; n != nil && !n.is("NFC") && !(n.Type == "Sequence" && len(n.Parts) == 0) {
		list = append(list, fmt.Sprintf("the normalizer %s is not applied", n.Type))
	}
	if f.Model.IgnoreMerges && pre != preLlama3 && len(f.Model.Merges) > 0 {
		list = append(list, "it joins by merges alone (ignore_merges)")
	}
	for _, a := range f.Added {
		if a.LStrip || a.RStrip || a.SingleWord {
			return append(list, fmt.Sprintf("lstrip, rstrip and single_word are ignored for the added "+
				"token %q", a.Content))
		}
	}
	return list
}

// otherIDs returns a note with the reasons why llama.cpp returns other ids for some texts, or an
// error if inexact is not set.
func otherIDs(reasons []string, inexact bool) (notes []string, err error) {
	if len(reasons) == 0 {
		return nil, nil
	}
	note := "llama.cpp gives other ids for some texts: " + strings.Join(reasons, "; ")
	if !inexact {
		return nil, fmt.Errorf("%s; use --inexact to store the tokenizer anyway; %s", note, copyHint)
	}
	return []string{note}, nil
}

const copyHint = "--to hf copies it unchanged"

// endOfMessage is the token with which Llama 3.1 ends a message that calls a tool.
const endOfMessage = "<|eom_id|>"

// ggufSpecialTokens returns the metadata about special tokens. GGUF has keys for only three tokens
// that end a text; notes lists further ones.
func ggufSpecialTokens(t Tokenizer) (entries []gguf.Entry, notes []string, err error) {
	ids, err := t.ids()
	if err != nil {
		return nil, nil, err
	}
	add := func(key string, id int32) {
		entries = append(entries, gguf.Entry{Key: "tokenizer.ggml." + key, Value: uint32(id)})
	}
	if t.BOS >= 0 {
		add("bos_token_id", t.BOS)
	}
	for i, id := range t.EOS {
		message, ok := ids[endOfMessage]
		isMessage := ok && id == message
		if i == 0 {
			add("eos_token_id", id)
		}
		if id == t.Turn {
			add("eot_token_id", id)
		}
		if isMessage {
			add("eom_token_id", id)
		}
		if i > 0 && id != t.Turn && !isMessage {
			notes = append(notes, fmt.Sprintf("token %d also ends texts, but GGUF has no key for it: "+
				"llama.cpp continues after it unless it knows its name", id))
		}
	}
	if t.Pad >= 0 {
		add("padding_token_id", t.Pad)
	}
	entries = append(entries, gguf.Entry{Key: "tokenizer.ggml.add_bos_token", Value: t.AddBOS})
	return append(entries, ggufTemplates(t.templates())...), notes, nil
}

// ggufTemplates returns the metadata about chat templates. Their names are reduced to the letters
// and digits that GGUF allows in keys.
func ggufTemplates(list map[string]string) (entries []gguf.Entry) {
	const key = "tokenizer.chat_template"
	var further []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if list[name] == "" {
			continue
		}
		if name == tokenizer.DefaultTemplate {
			entries = append(entries, gguf.Entry{Key: key, Value: list[name]})
			continue
		}
		plain := otherThanWords.ReplaceAllString(name, "_")
		if plain == "" || slices.Contains(further, plain) {
			continue
		}
		further = append(further, plain)
		entries = append(entries, gguf.Entry{Key: key + "." + plain, Value: list[name]})
	}
	if further != nil {
		entries = append(entries, gguf.Entry{Key: key + "s", Value: further})
	}
	return entries
}

var otherThanWords = regexp.MustCompile(`[^A-Za-z0-9]`)

// tokens returns the tokens and their types, indexed by id, for all vocab ids of the model.
func (f *tokenizerFile) tokens(vocab int) (tokens []string, types []int32) {
	tokens, types = make([]string, vocab), make([]int32, vocab)
	for token, id := range f.Model.Vocab {
		tokens[id], types[id] = token, tokenNormal
	}
	for _, a := range f.Added {
		if int(a.ID) >= vocab { // Gemma's tokenizer has a token more than its models
			continue
		}
		tokens[a.ID], types[a.ID] = a.Content, tokenUser
		if a.Special {
			types[a.ID] = tokenControl
		}
	}
	for id := range tokens {
		if types[id] == 0 {
			tokens[id], types[id] = paddingName(id), tokenUnused
		}
	}
	return tokens, types
}

func paddingName(id int) string { return fmt.Sprintf("[PAD%d]", id) }

func byteName(value int) string { return fmt.Sprintf("<0x%02X>", value) }

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

type byteLevelWords struct {
	digits  bool   // first at every digit
	pattern string // "": that of GPT-2
	whole   bool   // words that are tokens are not cut further (ignore_merges)
}

// preTokenizers are llama.cpp's names for these ways. The first is written.
var preTokenizers = []struct {
	names []string
	words byteLevelWords
}{
	{[]string{"gpt-2"}, byteLevelWords{}},
	{[]string{"smollm"}, byteLevelWords{digits: true}},
	{[]string{"qwen2", "deepseek-r1-qwen"}, byteLevelWords{pattern: tokenizer.PatternQwen}},
	{[]string{preLlama3, "llama3", "llama-v3", "falcon3"},
		byteLevelWords{pattern: tokenizer.PatternGPT4, whole: true}},
	{[]string{"dbrx", "smaug-bpe"}, byteLevelWords{pattern: tokenizer.PatternGPT4}},
}

// preLlama3 is llama.cpp's name for a pre-tokenizer; with it, llama.cpp does not apply merges to
// words that are tokens.
const preLlama3 = "llama-bpe"

// preName returns llama.cpp's name for the pre-tokenizer. It returns an error for an unknown
// pre-tokenizer, because a different one would return other ids.
func (f *tokenizerFile) preName() (string, error) {
	if f.Model.Type != "BPE" && f.Model.Type != "" {
		return "", fmt.Errorf("only BPE tokenizers can be stored, not %s: %s", f.Model.Type, copyHint)
	}
	parts := f.PreTokenizer.Parts
	if f.PreTokenizer.Type != "Sequence" {
		parts = []preTokenizer{f.PreTokenizer}
	}
	if len(parts) < 1 || len(parts) > 2 {
		return "", errPre
	}
	first, last := parts[0], parts[len(parts)-1]
	if last.Type != "ByteLevel" || last.AddPrefixSpace {
		return "", errPre
	}
	regex := last.UseRegex == nil || *last.UseRegex
	words := byteLevelWords{whole: f.Model.IgnoreMerges}
	switch {
	case len(parts) == 1 && (regex || len(f.Model.Merges) == 0): // without merges: tokens are bytes
	case len(parts) == 2 && first.Type == "Digits" && first.IndividualDigits && regex:
		words.digits = true
	case len(parts) == 2 && first.Type == "Split" && first.Behavior == "Isolated" &&
		!first.Invert && !regex && first.Pattern.Regex != "":
		words.pattern = first.Pattern.Regex
	default:
		return "", errPre
	}
	for _, whole := range []bool{words.whole, false} { // differences reports whole words
		for _, p := range preTokenizers {
			if words.whole = whole; p.words == words {
				return p.names[0], nil
			}
		}
	}
	return "", errPre
}

var errPre = errors.New("llama.cpp does not support the pre_tokenizer:  " + copyHint)

// sentencePiece returns the metadata of a tokenizer like Llama 2's, in llama.cpp's form for
// SentencePiece models. Keys and types are those that llama.cpp's converter writes; scores are the
// ranks of merges, because tokenizer.json has no scores.
func (f *tokenizerFile) sentencePiece(
	definition []byte, vocab int, inexact bool,
) (entries []gguf.Entry, notes []string, err error) {
	t, err := tokenizer.ReadHuggingFace(definition, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", tokenizer.DefinitionFile, err)
	}
	tokens, types := f.tokens(vocab)
	s, err := t.SentencePiece()
	if err != nil {
		return nil, nil, fmt.Errorf("llama.cpp does not support this tokenizer: %w: %s", err, copyHint)
	}
	if notes, err = otherIDs(s.Differs, inexact); err != nil {
		return nil, nil, err
	}
	for value := range 256 {
		if id, ok := f.Model.Vocab[byteName(value)]; ok && types[id] == tokenNormal {
			types[id] = tokenByte
		}
	}
	entries = []gguf.Entry{
		{Key: "tokenizer.ggml.model", Value: "llama"},
		{Key: "tokenizer.ggml.pre", Value: "default"},
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.scores",
			Value: append(s.Scores, make([]float32, max(0, vocab-len(s.Scores)))...)[:vocab]},
		{Key: "tokenizer.ggml.token_type", Value: types},
		{Key: "tokenizer.ggml.add_space_prefix", Value: s.Prefix},
	}
	if s.Unknown != tokenizer.NoToken {
		types[s.Unknown] = tokenUnknown
		unknown := gguf.Entry{Key: "tokenizer.ggml.unknown_token_id", Value: uint32(s.Unknown)}
		entries = append(entries, unknown)
	}
	return entries, notes, nil
}
