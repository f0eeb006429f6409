package export

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/plainjson"
)

// Tokenizer is the tokenizer of a model, as files. The files are copied, except
// generation_config.json, which the export generates.
type Tokenizer struct {
	Files map[string][]byte
	BOS   int32 // token that begins every document; −1: none
	// AddBOS tells programs to prepend BOS to every text.
	AddBOS bool
	EOS    []int32 // tokens that end a text
	Turn   int32   // the one of EOS that ends a turn of a conversation; −1: none
	Pad    int32   // padding token; −1: none
	// Warnings lists settings that programs loading the tokenizer will not know.
	Warnings []string
}

// config returns the tokenizer's settings; invalid ones are treated as absent.
func (t Tokenizer) config() tokenizer.Config {
	c, err := tokenizer.ParseConfig(t.Files[tokenizer.ConfigFile])
	if err != nil {
		return tokenizer.Config{}
	}
	return c
}

// templates returns the chat templates by name. A template in a separate file replaces the one in
// the settings.
func (t Tokenizer) templates() map[string]string {
	list := map[string]string{}
	for name, content := range t.Files {
		switch folder, file := path.Split(name); {
		case name == tokenizer.TemplateFile:
			list[tokenizer.DefaultTemplate] = string(content)
		case folder == tokenizer.TemplateFolder+"/":
			list[strings.TrimSuffix(file, path.Ext(file))] = string(content)
		}
	}
	if len(list) == 0 {
		list, _ = t.config().Templates() // invalid settings are treated as absent
	}
	return list
}

// NewTokenizer makes the tokenizer of a run, which info describes, from its files. For the built-in
// byte tokenizer, which has no tokenizer.json, it generates one that returns the same ids. A text
// ends at the tokens in ends and those named in tokenizer_config.json, info or
// generation_config.json or, if there are none, at the token that begins a document. Negative ids
// mean no token.
func NewTokenizer(files map[string][]byte, info tokenizer.Info, ends ...int32) (Tokenizer, error) {
	t := Tokenizer{Files: maps.Clone(files), BOS: info.BOS, AddBOS: info.BOS >= 0,
		Turn: tokenizer.NoToken}
	if _, ok := files[tokenizer.DefinitionFile]; !ok {
		if info.SHA256 != (tokenizer.Bytes{}).Info().SHA256 {
			return t, fmt.Errorf("the tokenizer %s has no %s", info.Name, tokenizer.DefinitionFile)
		}
		definition, err := tokenizer.BytesDefinition()
		if err != nil {
			return t, err
		}
		if t.Files == nil {
			t.Files = map[string][]byte{}
		}
		t.Files[tokenizer.DefinitionFile] = definition
		t.Files[tokenizer.ConfigFile] = []byte("{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}")
	}
	ids, err := t.ids()
	if err != nil {
		return t, err
	}
	id := func(key string) int32 { // of a token that the settings name, or NoToken
		token, err := t.config().Token(key)
		if id, ok := ids[token]; ok && err == nil {
			return id
		}
		return tokenizer.NoToken
	}
	t.Pad = id("pad_token")
	own := []int32{id("eos_token")}
	for _, id := range slices.Concat(own, t.generationEnds(), []int32{info.EOS}, ends) {
		if id >= 0 && !slices.Contains(t.EOS, id) {
			t.EOS = append(t.EOS, id)
		}
	}
	if len(t.EOS) == 0 && t.BOS >= 0 {
		t.EOS = []int32{t.BOS}
	}
	delete(t.Files, tokenizer.GenerationFile)
	return t, nil
}

// generationEnds returns the EOS ids in generation_config.json, which has one id or a list.
func (t Tokenizer) generationEnds() []int32 {
	var file struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	var one *int32 // nil for null
	var list []int32
	if json.Unmarshal(t.Files[tokenizer.GenerationFile], &file) != nil {
		return nil
	}
	if json.Unmarshal(file.EOS, &one) == nil && one != nil {
		return []int32{*one}
	}
	if json.Unmarshal(file.EOS, &list) != nil {
		return nil
	}
	return list
}

func (t Tokenizer) ids() (map[string]int32, error) {
	f, err := t.definition()
	if err != nil {
		return nil, err
	}
	ids := map[string]int32{}
	maps.Copy(ids, f.Model.Vocab)
	for _, a := range f.Added {
		ids[a.Content] = a.ID
	}
	return ids, nil
}

func (t Tokenizer) definition() (f tokenizerFile, err error) {
	if err := plainjson.Unmarshal(t.Files[tokenizer.DefinitionFile], &f); err != nil {
		return f, fmt.Errorf("%s: %w", tokenizer.DefinitionFile, err)
	}
	// As the reference library, and thus package tokenizer, reads them: a token of the vocabulary
	// keeps its id, even if added_tokens has another one, and tokens without text are ignored.
	f.Added = slices.DeleteFunc(f.Added, func(a addedToken) bool { return a.Content == "" })
	for i, a := range f.Added {
		if id, ok := f.Model.Vocab[a.Content]; ok {
			f.Added[i].ID = id
		}
	}
	return f, nil
}

// check returns an error unless the model has all ids of the tokenizer.
func (t Tokenizer) check(vocab int) error {
	f, err := t.definition()
	if err != nil {
		return err
	}
	for _, id := range append(slices.Clone(t.EOS), t.BOS, t.Pad) {
		if int(id) >= vocab {
			return fmt.Errorf("tokenizer: BOS, EOS or padding has the id %d, but the model has %d ids",
				id, vocab)
		}
	}
	// The two lists may give different ids for the same token.
	checkID := func(token string, id int32) error {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("tokenizer: the token %q has the id %d, but the model has %d ids",
				token, id, vocab)
		}
		return nil
	}
	for _, token := range slices.Sorted(maps.Keys(f.Model.Vocab)) {
		if err := checkID(token, f.Model.Vocab[token]); err != nil {
			return err
		}
	}
	for _, a := range f.Added {
		if a.ID < 0 {
			return checkID(a.Content, a.ID)
		}
	}
	return nil
}
