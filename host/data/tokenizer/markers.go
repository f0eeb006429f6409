package tokenizer

import (
	"encoding/json"
	"fmt"
)

// setMarkers finds the begin and the end token, as LoadHuggingFace says.
func (t *HuggingFace) setMarkers(postProcessor json.RawMessage, config []byte) error {
	bos, eos := NoToken, NoToken
	if present(postProcessor) {
		var err error
		if bos, eos, err = templateMarkers(postProcessor); err != nil {
			return fmt.Errorf("post_processor: %w", err)
		}
		t.addsBOS = bos != NoToken
	}
	for _, m := range []struct {
		id   *int32
		key  string
		read func(Config) (string, error)
	}{{&bos, "bos_token", Config.BOS}, {&eos, "eos_token", Config.EOS}} {
		if *m.id != NoToken || len(config) == 0 {
			continue
		}
		file, err := ParseConfig(config)
		var content string
		if err == nil {
			content, err = m.read(file)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", ConfigFile, err)
		}
		if content == "" {
			continue
		}
		id, ok := t.find(content)
		if !ok {
			return fmt.Errorf("%s: %s %q is not in the vocabulary", ConfigFile, m.key, content)
		}
		*m.id = id
	}
	return t.accept(bos, eos)
}

// find returns the id of a token.
func (t *HuggingFace) find(content string) (int32, bool) {
	for id, token := range t.tokens {
		if token == content {
			return id, true
		}
	}
	return NoToken, false
}

// accept makes bos and eos the begin and the end token; NoToken is fine.
func (t *HuggingFace) accept(bos, eos int32) error {
	for name, id := range map[string]int32{"begin": bos, "end": eos} {
		if _, ok := t.tokens[id]; !ok && id != NoToken {
			return fmt.Errorf("%s token: %w", name, &RangeError{ID: int64(id), VocabSize: t.info.VocabSize})
		}
	}
	t.info.BOS, t.info.EOS = bos, eos
	return nil
}

// postProcessor is the part of a post-processor that tells what it puts around a text.
type postProcessor struct {
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

// templateMarkers returns the tokens that a TemplateProcessing puts before and behind a
// single text, or NoToken.
func templateMarkers(section json.RawMessage) (bos, eos int32, err error) {
	var def postProcessor
	if err := json.Unmarshal(section, &def); err != nil {
		return NoToken, NoToken, err
	}
	for _, child := range def.Processors {
		if bos, eos, err := templateMarkers(child); err != nil || bos != NoToken || eos != NoToken {
			return bos, eos, err
		}
	}
	if def.Type != "TemplateProcessing" || len(def.Single) == 0 {
		return NoToken, NoToken, nil
	}
	if bos, err = def.special(0, "begins"); err == nil && len(def.Single) > 1 {
		eos, err = def.special(len(def.Single)-1, "ends")
		return bos, eos, err
	}
	return bos, NoToken, err
}

// special returns the id of an element of the template, NoToken where that is the text.
func (p *postProcessor) special(element int, does string) (int32, error) {
	token := p.Single[element].SpecialToken
	if token == nil {
		return NoToken, nil
	}
	if ids := p.SpecialTokens[token.ID].IDs; len(ids) == 1 && ids[0] >= 0 {
		return ids[0], nil
	}
	return NoToken, fmt.Errorf("the template %s with %q, which special_tokens does not give one id", does, token.ID)
}
