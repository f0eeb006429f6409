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
	file, err := tokenizer.ParseConfig(text)
	if err != nil {
		return nil, err
	}
	c := &config{}
	for _, key := range []struct {
		to   *string
		read func(tokenizer.Config) (string, error)
	}{
		{&c.tokens.BOS, tokenizer.Config.BOS}, {&c.tokens.EOS, tokenizer.Config.EOS}, {&c.tokens.Pad, tokenizer.Config.Pad},
		{&c.template, tokenizer.Config.Template},
	} {
		if *key.to, err = key.read(file); err != nil {
			return nil, err
		}
	}
	return c, nil
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
