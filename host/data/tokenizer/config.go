package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Config is the content of a tokenizer_config.json. Keys are parsed on demand, so that an error in
// an unused key has no effect.
type Config map[string]json.RawMessage

// ParseConfig parses a tokenizer_config.json.
func ParseConfig(text []byte) (c Config, err error) { return c, plainjson.Unmarshal(text, &c) }

// Token returns the token of a key: "bos_token" begins a document, "eos_token" ends one,
// "pad_token" pads sequences. It is "" if the key is absent. In the file, the token is a string or
// an object that contains it.
func (c Config) Token(key string) (string, error) {
	var token string
	if !present(c[key]) || json.Unmarshal(c[key], &token) == nil {
		return token, nil
	}
	var object struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(c[key], &object) != nil || object.Content == nil {
		return "", fmt.Errorf("%s: want a string, or an object with the key content", key)
	}
	return *object.Content, nil
}

// DefaultTemplate is the name of the default chat template.
const DefaultTemplate = "default"

// Template returns the chat template, or "" if the key is absent. If there are several templates,
// it returns the one with the name [DefaultTemplate].
func (c Config) Template() (string, error) {
	list, err := c.Templates()
	source, ok := list[DefaultTemplate]
	if err == nil && len(list) > 0 && !ok {
		err = fmt.Errorf("chat_template: none of its %d templates is named default", len(list))
	}
	return source, err
}

// Templates returns all chat templates by name, or nil if the key is absent.
func (c Config) Templates() (map[string]string, error) {
	var source string
	templates := c["chat_template"]
	if !present(templates) {
		return nil, nil
	}
	if json.Unmarshal(templates, &source) == nil {
		return map[string]string{DefaultTemplate: source}, nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if json.Unmarshal(templates, &list) != nil {
		return nil, errors.New("chat_template: " +
			"want a string, or a list of objects with name and template")
	}
	named := map[string]string{}
	for _, entry := range slices.Backward(list) { // the first of a name wins
		named[entry.Name] = entry.Template
	}
	return named, nil
}

// Names of the files of a published tokenizer.
const (
	// DefinitionFile defines the tokenizer.
	DefinitionFile = "tokenizer.json"
	// ConfigFile may name the BOS and EOS tokens, and hold a chat template.
	ConfigFile = "tokenizer_config.json"
	// SpecialsFile repeats the special tokens, for older programs.
	SpecialsFile = "special_tokens_map.json"
	// TemplateFile holds the chat template.
	TemplateFile = "chat_template.jinja"
	// TemplateFolder holds further templates, each in a file NAME.jinja.
	TemplateFolder = "additional_chat_templates"
	// GenerationFile names the tokens that begin and end generated texts.
	GenerationFile = "generation_config.json"
)

// Files lists these files, the definition first.
var Files = []string{DefinitionFile, ConfigFile, SpecialsFile, TemplateFile, GenerationFile}

// CompanionFiles lists the files that may accompany the definition. They describe how text is
// presented to the model, and are copied along with the tokenizer.
var CompanionFiles = Files[1:]
