package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// An UnsupportedError reports a part of a tokenizer.json that this package cannot compute exactly.
type UnsupportedError struct {
	Section string // section of the file, such as "pre_tokenizer"
	Feature string // the unsupported feature
	Hint    string // a supported alternative
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: %s is not supported; %s", e.Section, e.Feature, e.Hint)
}

// definition is the part of a tokenizer.json that determines ids. Sections with variants stay raw
// until their type is known.
type definition struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         modelDefinition `json:"model"`
	Others        others          `json:",embed"`
}

// others are entries without a field. A new key could change ids.
type others map[string]json.RawMessage

// key returns the first key whose value is not empty and that is not harmless; "" if there is none.
func (o others) key(harmless ...string) string {
	for _, key := range slices.Sorted(maps.Keys(o)) {
		empty := []string{"null", "false", "0", `""`, "[]", "{}"}
		if !slices.Contains(empty, string(o[key])) && !slices.Contains(harmless, key) {
			return key
		}
	}
	return ""
}

type modelDefinition struct {
	Type         string           `json:"type"`
	Vocab        map[string]int32 `json:"-"`
	Merges       []mergePair      `json:"-"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	Dropout      *float64         `json:"dropout"`
	FuseUnk      bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Others       others           `json:",embed"`
}

// UnmarshalJSON checks the type before it parses vocabulary and merges, whose format depends on it.
func (m *modelDefinition) UnmarshalJSON(data []byte) error {
	type plain modelDefinition
	var raw struct {
		plain
		Vocab  json.RawMessage `json:"vocab"`
		Merges json.RawMessage `json:"merges"`
	}
	if err := plainjson.UnmarshalPart(data, &raw); err != nil {
		return err
	}
	*m = modelDefinition(raw.plain)
	if m.Type != "BPE" && m.Type != "" {
		feature := fmt.Sprintf("type %q", m.Type)
		return &UnsupportedError{"model", feature, "use a tokenizer with a BPE model"}
	}
	if err := plainjson.UnmarshalPart(raw.Vocab, &m.Vocab); err != nil {
		return fmt.Errorf("model.vocab: %w", err)
	}
	if err := plainjson.UnmarshalPart(raw.Merges, &m.Merges); err != nil {
		return fmt.Errorf("model.merges: %w", err)
	}
	return nil
}

// check rejects sections that are nested too deeply, unsupported models, and ids that are out of
// range or duplicate.
func (d *definition) check() error {
	for name, section := range map[string]json.RawMessage{
		"normalizer": d.Normalizer, "pre_tokenizer": d.PreTokenizer,
		"post_processor": d.PostProcessor, "decoder": d.Decoder,
	} {
		// Nesting is limited because each level of a Sequence is copied and parsed again.
		dec := jsontext.NewDecoder(bytes.NewReader(section),
			jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		for {
			if _, err := dec.ReadToken(); err != nil {
				break // the end: the section is known to be valid JSON
			}
			if dec.StackDepth() > maxNesting {
				return fmt.Errorf("%s: values are nested more than %d deep", name, maxNesting)
			}
		}
	}
	for _, added := range d.AddedTokens {
		if added.SingleWord {
			feature := fmt.Sprintf("single_word of %q", added.Content)
			return &UnsupportedError{"added_tokens", feature, "set it to false"}
		}
	}
	m := &d.Model
	if key := cmp.Or(d.Others.key("version", "truncation", "padding"), m.Others.key()); key != "" {
		return &UnsupportedError{DefinitionFile, fmt.Sprintf("the key %q", key),
			"remove it if it changes no ids"}
	}
	set := func(s *string) bool { return s != nil && *s != "" }
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return &UnsupportedError{"model", "dropout", "set it to null: ids must not depend on chance"}
	case set(m.Prefix), set(m.Suffix):
		return &UnsupportedError{"model", "continuing_subword_prefix or end_of_word_suffix",
			"use a byte-level or SentencePiece BPE model"}
	case len(m.Vocab) == 0:
		return fmt.Errorf("model.vocab: missing or empty")
	}
	owner := make(map[int32]string, len(m.Vocab))
	for token, id := range m.Vocab {
		if id < 0 || id == math.MaxInt32 {
			return fmt.Errorf("model.vocab: token %q has id %d, want 0 to %d", token, id, math.MaxInt32-1)
		}
		if other, taken := owner[id]; taken {
			return fmt.Errorf("model.vocab: tokens %q and %q have the same id %d",
				min(token, other), max(token, other), id)
		}
		owner[id] = token
	}
	return nil
}

// mergePair is one entry of model.merges, in either published form: "a b" or ["a", "b"].
type mergePair [2]string

func (p *mergePair) UnmarshalJSON(data []byte) error {
	var pair []string
	if err := json.Unmarshal(data, &pair); err == nil {
		if len(pair) != 2 {
			return fmt.Errorf("merge %s has %d parts, want 2", data, len(pair))
		}
		*p = mergePair(pair)
		return nil
	}
	var joined string
	if err := json.Unmarshal(data, &joined); err != nil {
		return fmt.Errorf("merge %s is neither \"a b\" nor [\"a\", \"b\"]", data)
	}
	i := strings.Index(joined[min(1, len(joined)):], " ") + 1
	if i < 1 || i == len(joined)-1 {
		return fmt.Errorf("merge %q has no space between two parts", joined)
	}
	*p = mergePair{joined[:i], joined[i+1:]}
	return nil
}

// present reports whether a section exists: null counts as absent.
func present(section json.RawMessage) bool {
	return len(section) > 0 && string(section) != "null"
}

type pattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

func (p pattern) is(literal string) bool { return p.String != nil && *p.String == literal }

// ByteLevelWords returns the pre_tokenizer of a tokenizer.json for byte-level BPE that cuts texts
// at patterns, one after the other.
func ByteLevelWords(patterns ...string) map[string]any {
	var steps []any
	last := ByteLevel(patterns[len(patterns)-1] == PatternGPT2)
	for _, p := range patterns {
		switch p {
		case PatternGPT2:
		case PatternDigit:
			steps = append(steps, map[string]any{"type": "Digits", "individual_digits": true})
		default:
			steps = append(steps, map[string]any{"type": "Split", "behavior": "Isolated", "invert": false,
				"pattern": map[string]any{"Regex": p}})
		}
	}
	if len(steps) == 0 {
		return last
	}
	return map[string]any{"type": "Sequence", "pretokenizers": append(steps, last)}
}

// BytePatterns is the inverse of [ByteLevelWords]; ok reports whether the section has that form.
func BytePatterns(section json.RawMessage) (patterns []string, ok bool) {
	steps, err := flatten(section)
	for i, s := range steps {
		switch {
		case s.Type == "ByteLevel" && i == len(steps)-1 && s.AddPrefixSpace != nil && !*s.AddPrefixSpace:
			if s.UseRegex == nil || *s.UseRegex {
				patterns = append(patterns, PatternGPT2)
			}
			return patterns, err == nil
		case s.Type == "Digits" && s.IndividualDigits:
			patterns = append(patterns, PatternDigit)
		case s.Type == "Split" && s.Behavior == "Isolated" && !s.Invert && s.Pattern.Regex != nil:
			patterns = append(patterns, *s.Pattern.Regex)
		default:
			return nil, false
		}
	}
	return nil, false
}

// ByteLevel returns the decoder for byte-level BPE, and the last step of the pre_tokenizer.
func ByteLevel(regex bool) map[string]any {
	return map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
		"use_regex": regex}
}

// A Special is a special token.
type Special struct {
	Content string
	ID      int32
}

// Template returns the post_processor of a tokenizer.json that puts special tokens around texts.
func Template(before, after []Special) map[string]any {
	var single, pair []any
	tokens := map[string]any{}
	add := func(list []Special) {
		for _, t := range list {
			tokens[t.Content] = map[string]any{"id": t.Content, "ids": []int32{t.ID},
				"tokens": []string{t.Content}}
			pair = append(pair,
				map[string]any{"SpecialToken": map[string]any{"id": t.Content, "type_id": 0}})
		}
	}
	for i, text := range []string{"A", "B"} {
		add(before)
		pair = append(pair, map[string]any{"Sequence": map[string]any{"id": text, "type_id": i}})
		if add(after); i == 0 {
			single = slices.Clone(pair)
		}
	}
	return map[string]any{"type": "TemplateProcessing", "single": single, "pair": pair,
		"special_tokens": tokens}
}

// sections returns the sections of a tokenizer.json for byte-level BPE. words is the pre_tokenizer;
// the token bos, with the id bosID, is put before each text.
func sections(words any, bos string, bosID int, added []map[string]any, vocab map[string]int32,
	merges [][2]string) map[string]any {
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil,
		"added_tokens": added, "pre_tokenizer": words, "decoder": ByteLevel(false),
		"post_processor": Template([]Special{{bos, int32(bosID)}}, nil),
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
			"vocab": vocab, "merges": merges,
		},
	}
}

// BytesDefinition returns a tokenizer.json with which other programs get the same ids as [Bytes]:
// the id of each byte is its value.
func BytesDefinition() ([]byte, error) {
	vocab := map[string]int32{}
	for b, r := range byteToRune {
		vocab[string(r)] = int32(b)
	}
	file := sections(ByteLevel(false), string(byteToRune[0]), 0,
		[]map[string]any{}, vocab, [][2]string{})
	return json.MarshalIndent(file, "", "  ")
}

// Limits for a tokenizer.json, without which a small file could require any amount of memory.
const (
	maxFile    = 128 << 20 // bytes of a file; the largest published ones have around 35 MB
	maxNesting = 32        // of values; published files have a depth of about six
)

func readFile(path string) ([]byte, error) { return vfs.At(path).ReadSmallFile(maxFile) }
