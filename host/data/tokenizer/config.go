package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Config is the content of a tokenizer_config.json. A key is parsed only when it is asked
// for, so that a mistake in another one does no harm. Texts that are absent are empty.
type Config struct {
	bos, eos, pad, template json.RawMessage
}

// ParseConfig parses a tokenizer_config.json.
func ParseConfig(text []byte) (Config, error) {
	var file struct {
		BOS      json.RawMessage `json:"bos_token"`
		EOS      json.RawMessage `json:"eos_token"`
		Pad      json.RawMessage `json:"pad_token"`
		Template json.RawMessage `json:"chat_template"`
	}
	err := plainjson.Unmarshal(text, &file)
	return Config{file.BOS, file.EOS, file.Pad, file.Template}, err
}

// BOS returns the token that begins a document.
func (c Config) BOS() (string, error) { return configToken("bos_token", c.bos) }

// EOS returns the token that ends a document.
func (c Config) EOS() (string, error) { return configToken("eos_token", c.eos) }

// Pad returns the token that pads sequences.
func (c Config) Pad() (string, error) { return configToken("pad_token", c.pad) }

// configToken reads a token: a string, or an object with its content.
func configToken(key string, value json.RawMessage) (string, error) {
	var token string
	if !present(value) || json.Unmarshal(value, &token) == nil {
		return token, nil
	}
	var object struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(value, &object) != nil || object.Content == nil {
		return "", fmt.Errorf("%s: want a string, or an object with the key content", key)
	}
	return *object.Content, nil
}

// DefaultTemplate is the name of the chat template that is used where none is named.
const DefaultTemplate = "default"

// Template returns the chat template. If the key holds a list of named templates, it is
// [DefaultTemplate].
func (c Config) Template() (string, error) {
	list, err := c.Templates()
	source, ok := list[DefaultTemplate]
	if err == nil && len(list) > 0 && !ok {
		err = fmt.Errorf("chat_template: none of its %d templates has the name default", len(list))
	}
	return source, err
}

// Templates returns all chat templates by name; none where the key is absent.
func (c Config) Templates() (map[string]string, error) {
	var source string
	if !present(c.template) {
		return nil, nil
	}
	if json.Unmarshal(c.template, &source) == nil {
		return map[string]string{DefaultTemplate: source}, nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if json.Unmarshal(c.template, &list) != nil {
		return nil, errors.New("chat_template: want a string, or a list of objects with name and template")
	}
	named := map[string]string{}
	for _, entry := range slices.Backward(list) { // of two with a name, the first
		named[entry.Name] = entry.Template
	}
	return named, nil
}

// Names of the files of a published tokenizer.
const (
	// DefinitionFile defines the tokenizer.
	DefinitionFile = "tokenizer.json"
	// ConfigFile may name the tokens that begin and end a document, and hold a chat template.
	ConfigFile = "tokenizer_config.json"
	// SpecialsFile names the special tokens again, for older programs.
	SpecialsFile = "special_tokens_map.json"
	// TemplateFile is the chat template.
	TemplateFile = "chat_template.jinja"
	// TemplateFolder has further templates by name, each in a file with the extension .jinja.
	TemplateFolder = "additional_chat_templates"
	// GenerationFile names the tokens at which texts begin and end.
	GenerationFile = "generation_config.json"
)

// Files lists all of these files, the definition first.
var Files = []string{DefinitionFile, ConfigFile, SpecialsFile, TemplateFile, GenerationFile}

// CompanionFiles lists the files that may accompany the definition. They say how text is
// presented to the model, and are copied along with the tokenizer.
var CompanionFiles = Files[1:]
