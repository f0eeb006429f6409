package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/regular"
)

// SpecialTokens are those that templates print; "" where there is none.
type SpecialTokens struct {
	BOS string `json:"bos_token,omitempty"`
	EOS string `json:"eos_token,omitempty"`
	Pad string `json:"pad_token,omitempty"`
}

// config is what tokenizer_config.json says about chats.
type config struct {
	tokens   SpecialTokens
	template string // "": none
}

// readConfig reads the tokenizer_config.json of a tokenizer; without one, or without a
// folder, it is empty.
func readConfig(folder string) (*config, error) {
	path := filepath.Join(tokenizerFolder(folder), tokenizer.ConfigFile)
	text, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &config{}, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func parseConfig(text []byte) (*config, error) {
	var file struct {
		BOS      json.RawMessage `json:"bos_token"`
		EOS      json.RawMessage `json:"eos_token"`
		Pad      json.RawMessage `json:"pad_token"`
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	c := &config{}
	for _, token := range []struct {
		name string
		text json.RawMessage
		to   *string
	}{{"bos_token", file.BOS, &c.tokens.BOS}, {"eos_token", file.EOS, &c.tokens.EOS}, {"pad_token", file.Pad, &c.tokens.Pad}} {
		if err := parseToken(token.text, token.to); err != nil {
			return nil, fmt.Errorf("%s: %w", token.name, err)
		}
	}
	var err error
	c.template, err = parseTemplate(file.Template)
	return c, err
}

// absent tells whether a key has no value.
func absent(text json.RawMessage) bool { return len(text) == 0 || string(text) == "null" }

// parseToken reads a token: a string, or an object with its content.
func parseToken(text json.RawMessage, to *string) error {
	if absent(text) || json.Unmarshal(text, to) == nil {
		return nil
	}
	var object struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(text, &object) != nil || object.Content == nil {
		return errors.New("want a string, or an object with the key content")
	}
	*to = *object.Content
	return nil
}

// parseTemplate reads a template: a string, or a list of named ones of which "default" is
// taken.
func parseTemplate(text json.RawMessage) (string, error) {
	var source string
	if absent(text) || json.Unmarshal(text, &source) == nil {
		return source, nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if json.Unmarshal(text, &list) != nil {
		return "", errors.New("chat_template: want a string, or a list of objects with name and template")
	}
	for _, entry := range list {
		if entry.Name == "default" {
			return entry.Template, nil
		}
	}
	return "", fmt.Errorf("chat_template: none of its %d templates has the name default", len(list))
}

// specialTokens lists the special tokens of a tokenizer.json.
func specialTokens(definition []byte) ([]string, error) {
	var file struct {
		AddedTokens []struct {
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(definition, &file); err != nil {
		return nil, err
	}
	var list []string
	for _, token := range file.AddedTokens {
		if token.Special && token.Content != "" {
			list = append(list, token.Content)
		}
	}
	return list, nil
}
