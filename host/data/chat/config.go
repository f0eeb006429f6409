package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/regular"
)

// SpecialTokens are the special tokens that templates print; "" if there is none.
type SpecialTokens struct {
	BOS string `json:"bos_token,omitempty"`
	EOS string `json:"eos_token,omitempty"`
	Pad string `json:"pad_token,omitempty"`
}

// config is what tokenizer_config.json says about chats.
type config struct {
	tokens   SpecialTokens
	template string // "": none
	file     map[string]json.RawMessage
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
	if err := plainjson.Unmarshal(text, &c.file); err != nil {
		return nil, err
	}
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

// tokenizerConfig is the tokenizer_config.json of a data set: the model's with the tokens of the template, and without a
// template of its own, which stands in a file beside it. Added tokens stand among its own, where it lists them.
func (t *Template) tokenizerConfig(added []AddedToken) (map[string]any, error) {
	out := map[string]any{}
	for key, value := range t.config.file {
		out[key] = value
	}
	delete(out, "chat_template")
	if listed, ok := t.config.file["added_tokens_decoder"]; ok && len(added) > 0 {
		list := map[string]any{}
		if err := json.Unmarshal(listed, &list); err != nil {
			return nil, fmt.Errorf("%s: added_tokens_decoder: %w", tokenizer.ConfigFile, err)
		}
		for _, token := range added {
			list[strconv.Itoa(token.ID)] = map[string]any{"content": token.Content, "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": true}
		}
		out["added_tokens_decoder"] = list
	}
	for key, token := range map[string]struct{ now, before string }{
		"bos_token": {t.Tokens.BOS, t.config.tokens.BOS}, "eos_token": {t.Tokens.EOS, t.config.tokens.EOS}, "pad_token": {t.Tokens.Pad, t.config.tokens.Pad},
	} {
		switch {
		case token.now == token.before: // it stays as it is, as an object with more than its text
		case token.now == "":
			delete(out, key)
		default:
			out[key] = token.now
		}
	}
	return out, nil
}

// specialTokens lists the special tokens of a tokenizer.json.
func specialTokens(definition []byte) ([]string, error) {
	var file struct {
		AddedTokens []struct {
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens"`
	}
	if err := plainjson.Unmarshal(definition, &file); err != nil {
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
