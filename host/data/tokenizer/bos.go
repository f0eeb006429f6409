package tokenizer

import (
	"encoding/json"
	"fmt"
)

// setBOS finds the beginning-of-document token, as LoadHuggingFace says.
func (t *HuggingFace) setBOS(postProcessor json.RawMessage, config []byte) error {
	t.info.BOS = NoBOS
	if present(postProcessor) {
		id, err := templateBOS(postProcessor)
		if err == nil && id != NoBOS {
			return t.acceptBOS(id)
		}
		if err != nil {
			return fmt.Errorf("post_processor: %w", err)
		}
	}
	if len(config) == 0 {
		return nil
	}
	content, err := configBOS(config)
	if err != nil || content == "" {
		return err
	}
	for id, token := range t.tokens {
		if token == content {
			t.info.BOS = id
			return nil
		}
	}
	return fmt.Errorf("%s: bos_token %q is not in the vocabulary", configFile, content)
}

// acceptBOS makes id the beginning-of-document token; NoBOS is fine.
func (t *HuggingFace) acceptBOS(id int32) error {
	if _, ok := t.tokens[id]; !ok && id != NoBOS {
		return fmt.Errorf("beginning-of-document token: %w", &RangeError{ID: int64(id), VocabSize: t.info.VocabSize})
	}
	t.info.BOS = id
	return nil
}

// templateBOS returns the id that a TemplateProcessing puts before a single
// text, or NoBOS.
func templateBOS(section json.RawMessage) (int32, error) {
	var def struct {
		Type       string            `json:"type"`
		Processors []json.RawMessage `json:"processors"`
		Single     []struct {
			SpecialToken *struct {
				ID string `json:"id"`
			} `json:"SpecialToken"`
		} `json:"single"`
		SpecialTokens map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(section, &def); err != nil {
		return NoBOS, err
	}
	for _, child := range def.Processors {
		if id, err := templateBOS(child); err != nil || id != NoBOS {
			return id, err
		}
	}
	if def.Type != "TemplateProcessing" || len(def.Single) == 0 || def.Single[0].SpecialToken == nil {
		return NoBOS, nil
	}
	name := def.Single[0].SpecialToken.ID
	if ids := def.SpecialTokens[name].IDs; len(ids) == 1 && ids[0] >= 0 {
		return ids[0], nil
	}
	return NoBOS, fmt.Errorf("the template begins with %q, which special_tokens does not give one id", name)
}

// configBOS returns the bos_token of a tokenizer_config.json: a string, an
// object with its content, or nothing.
func configBOS(config []byte) (string, error) {
	var def struct {
		BOS json.RawMessage `json:"bos_token"`
	}
	if err := json.Unmarshal(config, &def); err != nil {
		return "", fmt.Errorf("%s: %w", configFile, err)
	}
	if !present(def.BOS) {
		return "", nil
	}
	var content string
	if json.Unmarshal(def.BOS, &content) == nil {
		return content, nil
	}
	var token struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(def.BOS, &token); err != nil {
		return "", fmt.Errorf("%s: bos_token: %w", configFile, err)
	}
	return token.Content, nil
}
