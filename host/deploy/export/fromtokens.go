package export

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/host/model/huggingface"
)

type object = map[string]any

// tokenizerOf returns the tokenizer of a GGUF file as files of a Hugging Face checkpoint, by name,
// and its special tokens. It gives the ids of llama.cpp. Without a tokenizer, there are no files.
// vocab is the number of ids of the model.
func tokenizerOf(f *gguf.File, vocab int) (
	files map[string][]byte, special huggingface.Tokens, err error) {
	t := &ggufVocabulary{File: f, ids: map[string]int32{}}
	files = map[string][]byte{}
	kind, _ := t.get("model").(string)
	if kind == "" || kind == "no_vocab" {
		return files, special, nil
	}
	if err := t.readTokens(vocab); err != nil {
		return nil, special, err
	}
	for _, e := range f.Entries {
		key, ok := strings.CutPrefix(e.Key, "tokenizer.ggml.")
		if ok && !strings.HasSuffix(key, "_token_id") && !slices.Contains(ggufTokenKeys, key) &&
			!reflect.ValueOf(e.Value).IsZero() {
			return nil, special, fmt.Errorf("%s: found %v, want no such key: cage does not have this "+
				"setting, which may change the ids of texts", e.Key, shortened(e.Value))
		}
	}
	var definition object
	switch kind {
	case "gpt2":
		definition, err = t.byteLevel()
	case "llama":
		definition, err = t.sentencePiece()
	default:
		err = fmt.Errorf("tokenizer.ggml.model: found %q, want gpt2 (byte-level BPE) or llama "+
			"(SentencePiece)", kind)
	}
	if err != nil {
		return nil, special, err
	}
	config := object{"tokenizer_class": "PreTrainedTokenizerFast",
		"clean_up_tokenization_spaces": false}
	for _, s := range []struct {
		key, name string
		to        *[]int32
	}{{"bos", "bos_token", &special.Begin}, {"eos", "eos_token", &special.End},
		{"eot", "", &special.End}, {"eom", "", &special.End}, {"padding", "pad_token", &special.Pad},
		{"unknown", "unk_token", nil}} {
		id, err := t.id(s.key)
		if err != nil {
			return nil, special, err
		}
		if id < 0 {
			continue
		}
		if s.name != "" {
			config[s.name] = t.tokens[id]
		}
		if s.to != nil && !slices.Contains(*s.to, id) {
			*s.to = append(*s.to, id)
		}
	}
	definition["post_processor"] = t.around(special)
	if list := t.templates(); list != nil {
		config["chat_template"] = list
	}
	a, errA := json.MarshalIndent(definition, "", " ")
	b, errB := json.MarshalIndent(config, "", " ")
	files[tokenizer.DefinitionFile], files[tokenizer.ConfigFile] = a, b
	if err := errors.Join(errA, errB); err != nil {
		return nil, special, err
	}
	if _, err = tokenizer.ReadHuggingFace(a, b); err != nil {
		err = fmt.Errorf("tokenizer.ggml: as a %s: %w", tokenizer.DefinitionFile, err)
	}
	return files, special, err
}

// ggufTokenKeys are the keys of tokenizer.ggml that are read, beside ids of special tokens, or that
// do not matter.
var ggufTokenKeys = strings.Fields("add_bos_token add_eos_token add_space_prefix merges model pre " +
	"scores token_type token_type_count tokens")

// ggufVocabulary is the part of a tokenizer that a GGUF file stores.
type ggufVocabulary struct {
	*gguf.File
	tokens  []string
	types   []int32
	ids     map[string]int32
	addsBOS bool // llama.cpp puts BOS before texts unless the file says otherwise
}

func (t *ggufVocabulary) get(key string) any { return t.Value("tokenizer.ggml." + key) }

func (t *ggufVocabulary) flag(key string, otherwise bool) bool {
	if v, ok := t.get(key).(bool); ok {
		return v
	}
	return otherwise
}

// id returns the id of a special token; NoToken if there is none.
func (t *ggufVocabulary) id(key string) (int32, error) {
	x, ok := number(t.get(key + "_token_id"))
	if !ok || x < 0 || x == math.MaxUint32 {
		return tokenizer.NoToken, nil
	}
	if !(x < float64(len(t.tokens))) { // NaN, too
		return 0, fmt.Errorf("tokenizer.ggml.%s_token_id: found %v, want an id below %d",
			key, x, len(t.tokens))
	}
	return int32(x), nil
}

// maxTokenBytes bounds a token. Published ones have at most a few hundred bytes.
const maxTokenBytes = 1024

// readTokens reads the tokens and their types. Ids that only fill up the model are left out of ids.
func (t *ggufVocabulary) readTokens(vocab int) error {
	t.tokens, _ = t.get("tokens").([]string)
	t.types, _ = t.get("token_type").([]int32)
	if len(t.tokens) == 0 || len(t.types) != len(t.tokens) {
		return fmt.Errorf("tokenizer.ggml: found %d tokens and %d of token_type, want as many as tokens",
			len(t.tokens), len(t.types))
	}
	if len(t.tokens) > vocab {
		return fmt.Errorf("tokenizer.ggml.tokens: found %d tokens, but the model has %d ids",
			len(t.tokens), vocab)
	}
	for id, token := range t.tokens {
		if t.types[id] == tokenUnused && token == paddingName(id) {
			continue
		}
		if other, ok := t.ids[token]; ok {
			return fmt.Errorf("tokenizer.ggml.tokens: %q has the ids %d and %d", token, other, id)
		}
		if len(token) > maxTokenBytes || !utf8.ValidString(token) {
			return fmt.Errorf("tokenizer.ggml.tokens: the token %d has %d bytes, want at most %d of UTF-8",
				id, len(token), maxTokenBytes)
		}
		t.ids[token] = int32(id)
	}
	return nil
}

// definition returns a tokenizer.json, with the special tokens that are found in texts before
// these are cut into words.
func (t *ggufVocabulary) definition(normalizer, words, decoder any, model object) object {
	added := []object{}
	for id, typ := range t.types {
		if isAdded(typ) {
			added = append(added, object{"id": id, "content": t.tokens[id], "special": typ != tokenUser,
				"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
		}
	}
	maps.Copy(model, object{"type": "BPE", "vocab": t.vocab(), "dropout": nil,
		"continuing_subword_prefix": nil, "end_of_word_suffix": nil})
	return object{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer": normalizer, "pre_tokenizer": words, "decoder": decoder, "model": model}
}

func isAdded(typ int32) bool {
	return typ == tokenControl || typ == tokenUnknown || typ == tokenUser
}

// vocab returns the tokens of the model by id. Added tokens behind all others are left out, as in
// most published files, so that data prepared with such a file has the same tokenizer; the library
// of Hugging Face numbers them from the size of the vocabulary on, without gaps.
func (t *ggufVocabulary) vocab() map[string]int32 {
	own := len(t.types)
	for own > 0 && (isAdded(t.types[own-1]) || t.types[own-1] == tokenUnused) {
		own--
	}
	behind := 0 // added tokens behind the last other one, without gaps
	for own+behind < len(t.types) && isAdded(t.types[own+behind]) {
		behind++
	}
	if len(t.ids) != own+behind { // there are gaps, or unused tokens
		return t.ids
	}
	list := maps.Clone(t.ids)
	for _, token := range t.tokens[own : own+behind] {
		delete(list, token)
	}
	return list
}

func (t *ggufVocabulary) byteLevel() (object, error) {
	name, _ := t.get("pre").(string)
	var known []string
	for _, p := range preTokenizers {
		known = append(known, p.names...)
		if !slices.Contains(p.names, name) {
			continue
		}
		t.addsBOS = p.whole
		all, _ := t.get("merges").([]string)
		merges, seen := []string{}, map[string]bool{}
		for _, m := range all {
			if !seen[m] { // of equal ones, llama.cpp uses the first
				merges, seen[m] = append(merges, m), true
			}
		}
		return t.definition(nil, tokenizer.ByteLevelWords(p.patterns...),
			tokenizer.ByteLevel(false), object{"merges": merges,
				"unk_token": nil, "fuse_unk": false, "byte_fallback": false,
				"ignore_merges": p.whole}), nil
	}
	return nil, fmt.Errorf("tokenizer.ggml.pre: found %q, want one of %s: cage cannot cut texts "+
		"into words as others do", name, strings.Join(known, ", "))
}

func (t *ggufVocabulary) sentencePiece() (object, error) {
	for value := range 256 {
		if _, ok := t.ids[byteName(value)]; !ok {
			return nil, fmt.Errorf("tokenizer.ggml.tokens: %s is missing, want a token for each byte",
				byteName(value))
		}
	}
	merges, err := t.merges()
	if err != nil {
		return nil, err
	}
	unknown, err := t.id("unknown")
	if err != nil {
		return nil, err
	}
	t.addsBOS = true
	const mark = "▁"
	replace := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	normalizers := []object{replace(" ", mark)}
	decoders := []object{replace(mark, " "), {"type": "ByteFallback"}, {"type": "Fuse"}}
	if t.flag("add_space_prefix", true) {
		normalizers = slices.Insert(normalizers, 0, object{"type": "Prepend", "prepend": mark})
		decoders = append(decoders, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	model := object{"merges": merges, "unk_token": nil, "fuse_unk": true, "byte_fallback": true,
		"ignore_merges": false}
	if unknown >= 0 {
		model["unk_token"] = t.tokens[unknown]
	}
	return t.definition(object{"type": "Sequence", "normalizers": normalizers}, nil,
		object{"type": "Sequence", "decoders": decoders}, model), nil
}

// merges returns the merges of a SentencePiece model. It joins any two neighbours whose text is a
// token, that of the highest score first: so each way of cutting a token in two tokens is a merge,
// with the rank of the token's score. Ties go to the longer first part, as in the converter of
// transformers.
func (t *ggufVocabulary) merges() ([][2]string, error) {
	scores, _ := t.get("scores").([]float32)
	if len(scores) != len(t.tokens) {
		return nil, fmt.Errorf("tokenizer.ggml.scores: found %d, want one for each of %d tokens",
			len(scores), len(t.tokens))
	}
	order := make([]int, 0, len(t.tokens))
	for id, token := range t.tokens {
		if t.ids[token] == int32(id) {
			order = append(order, id)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	merges := [][2]string{}
	for _, id := range order {
		token := t.tokens[id]
		for i := len(token) - 1; i > 0; i-- {
			_, left := t.ids[token[:i]]
			_, right := t.ids[token[i:]]
			if left && right {
				merges = append(merges, [2]string{token[:i], token[i:]})
			}
		}
	}
	return merges, nil
}

// around returns the post_processor of a tokenizer.json: what is put around texts.
func (t *ggufVocabulary) around(special huggingface.Tokens) any {
	var before, after []tokenizer.Special
	if t.flag("add_bos_token", t.addsBOS) && len(special.Begin) > 0 {
		before = []tokenizer.Special{{Content: t.tokens[special.Begin[0]], ID: special.Begin[0]}}
	}
	if t.flag("add_eos_token", false) && len(special.End) > 0 {
		after = []tokenizer.Special{{Content: t.tokens[special.End[0]], ID: special.End[0]}}
	}
	if before == nil && after == nil {
		return nil
	}
	return tokenizer.Template(before, after)
}

// templates returns the chat templates: one, or a list of several by name.
func (t *ggufVocabulary) templates() any {
	const key = "tokenizer.chat_template"
	var list []object
	only, _ := t.Value(key).(string)
	if only != "" {
		list = append(list, object{"name": tokenizer.DefaultTemplate, "template": only})
	}
	further, _ := t.Value(key + "s").([]string)
	for _, name := range further {
		if source, _ := t.Value(key + "." + name).(string); source != "" {
			list = append(list, object{"name": name, "template": source})
		}
	}
	switch {
	case len(list) == 0:
		return nil
	case len(list) == 1 && only != "":
		return only
	}
	return list
}
