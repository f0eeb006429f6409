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

type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	Special    bool   `json:"special"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	SingleWord bool   `json:"single_word"`
}

type tokenizerFile struct {
	Added        []addedToken    `json:"added_tokens"`
	Normalizer   *normalizer     `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
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
	pre, differs, err := f.preName()
	if err != nil {
		return nil, nil, err
	}
	tokens, types := f.tokens(vocab)
	if notes, err = otherIDs(append(differs, f.differences()...), inexact); err != nil {
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

// differences lists further reasons why llama.cpp returns other ids than a byte-level tokenizer for
// some texts. It does not list that llama.cpp skips NFC normalization, because Qwen's tokenizers
// are used with llama.cpp nevertheless.
func (f *tokenizerFile) differences() (list []string) {
	if n := f.Normalizer; n != nil && !n.is("NFC") && !(n.Type == "Sequence" && len(n.Parts) == 0) {
		list = append(list, fmt.Sprintf("the normalizer %s is not applied", n.Type))
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
				"llama.cpp continues after it unless it recognizes its text", id))
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

// preTokenizers are llama.cpp's names for ways to cut texts into words. The first is written.
var preTokenizers = []struct {
	names    []string
	patterns []string // that cut texts, one after the other
	whole    bool     // words that are tokens are not cut (ignore_merges); texts begin with BOS
	differs  string   // where llama.cpp cuts other words
}{
	{names: []string{"gpt-2", "olmo", "mpt"}, patterns: []string{tokenizer.PatternGPT2}},
	{names: []string{"smollm", "refact", "starcoder", "command-r"},
		patterns: []string{tokenizer.PatternDigit, tokenizer.PatternGPT2}},
	{names: []string{"qwen2", "deepseek-r1-qwen"}, patterns: []string{tokenizer.PatternQwen}},
	{names: []string{"llama-bpe", "llama3", "llama-v3", "falcon3"},
		patterns: []string{tokenizer.PatternGPT4}, whole: true},
	{names: []string{"dbrx", "smaug-bpe"}, patterns: []string{tokenizer.PatternGPT4}},
	{names: []string{"qwen35"}, patterns: []string{`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?` +
		`[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`}},
	{names: []string{"tekken"}, patterns: []string{byCase(``, tokenizer.PatternDigit)}, whole: true,
		differs: byASCII},
	{names: []string{"gpt-4o", "llama4"}, differs: byASCII,
		patterns: []string{byCase(`(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, `\p{N}{1,3}`)}},
	{names: []string{"deepseek-v3"}, patterns: []string{`\p{N}{1,3}`, `[一-龥぀-ゟ゠-ヿ]+`,
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?" +
			"[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}},
	{names: []string{"deepseek-coder"}, patterns: []string{"[\r\n]", `\s?\p{L}+`, `\s?\p{P}+`,
		"[一-龥\u0800-一가-\ud7ff]+", tokenizer.PatternDigit}},
}

const byASCII = "of letters, only A to Z and a to z have a case where words end"

// byCase returns the pattern of Mistral's Tekken or of GPT-4o, whose words end where a small letter
// precedes a capital.
func byCase(contraction, numbers string) string {
	const begin, upper, lower = `[^\r\n\p{L}\p{N}]?`, `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`,
		`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	return begin + upper + `*` + lower + `+` + contraction + `|` + begin + upper + `+` + lower + `*` +
		contraction + `|` + numbers + `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
}

// preName returns llama.cpp's name for the pre-tokenizer, and why llama.cpp returns other ids. An
// unknown pre-tokenizer is an error.
func (f *tokenizerFile) preName() (name string, differs []string, err error) {
	if f.Model.Type != "BPE" && f.Model.Type != "" {
		return "", nil, fmt.Errorf("only BPE tokenizers can be stored, not %s: %s", f.Model.Type,
			copyHint)
	}
	patterns, ok := tokenizer.BytePatterns(f.PreTokenizer)
	if ok && patterns == nil && len(f.Model.Merges) == 0 { // tokens are bytes
		patterns = []string{tokenizer.PatternGPT2}
	}
	for _, whole := range []bool{f.Model.IgnoreMerges, false} {
		for _, p := range preTokenizers {
			if !ok || p.whole != whole || !slices.Equal(p.patterns, patterns) {
				continue
			}
			if p.differs != "" {
				differs = append(differs, p.differs)
			}
			if f.Model.IgnoreMerges && !whole && len(f.Model.Merges) > 0 {
				differs = append(differs, "it joins by merges alone (ignore_merges)")
			}
			return p.names[0], differs, nil
		}
	}
	return "", nil, errPre
}

var errPre = errors.New("llama.cpp does not support the pre_tokenizer: " + copyHint)

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
