package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/plainjson"
)

// findBoundaries finds the BOS and EOS tokens, as documented at LoadHuggingFace.
func (t *HuggingFace) findBoundaries(postProcessor json.RawMessage, config []byte) error {
	bos, eos, err := templateTokens(postProcessor)
	if err != nil {
		return err
	}
	t.addsBOS = bos != NoToken
	if len(config) == 0 {
		return t.setBoundaries(bos, eos)
	}
	file, err := ParseConfig(config)
	if err != nil {
		return fmt.Errorf("%s: %w", ConfigFile, err)
	}
	for key, id := range map[string]*int32{"bos_token": &bos, "eos_token": &eos} {
		if *id != NoToken {
			continue
		}
		content, err := file.Token(key)
		if err != nil {
			return fmt.Errorf("%s: %w", ConfigFile, err)
		}
		found := false
		if *id, found = t.find(content); content != "" && !found {
			return fmt.Errorf("%s: %s %q is not in the vocabulary", ConfigFile, key, content)
		}
	}
	return t.setBoundaries(bos, eos)
}

func (t *HuggingFace) find(content string) (int32, bool) {
	for id, token := range t.tokens {
		if token == content && content != "" {
			return id, true
		}
	}
	return NoToken, false
}

func (t *HuggingFace) setBoundaries(bos, eos int32) error {
	for name, id := range map[string]int32{"BOS": bos, "EOS": eos} {
		if _, ok := t.tokens[id]; !ok && id != NoToken {
			return fmt.Errorf("%s token: %w", name, &RangeError{int64(id), t.info.VocabSize})
		}
	}
	t.info.BOS, t.info.EOS = bos, eos
	return nil
}

// templateTokens returns the tokens that a post-processor puts before and after a single text. Each
// may be NoToken.
func templateTokens(section json.RawMessage) (bos, eos int32, err error) {
	type part struct {
		SpecialToken, Sequence *struct {
			ID string `json:"id"`
		}
	}
	var def struct {
		Type          string            `json:"type"`
		Processors    []json.RawMessage `json:"processors"`
		Single        []part            `json:"single"`
		SpecialTokens map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if !present(section) {
		return NoToken, NoToken, nil
	}
	unsupported := func(feature, hint string) (int32, int32, error) {
		return NoToken, NoToken, &UnsupportedError{"post_processor", feature, hint}
	}
	if err := plainjson.UnmarshalPart(section, &def); err != nil {
		return NoToken, NoToken, fmt.Errorf("post_processor: %w", err)
	}
	bos, eos = NoToken, NoToken
	switch def.Type {
	case "ByteLevel": // only changes offsets
		return NoToken, NoToken, nil
	case "Sequence":
		for _, section := range def.Processors {
			before, after, err := templateTokens(section)
			switch {
			case err != nil:
				return NoToken, NoToken, err
			case before == NoToken && after == NoToken:
			case bos != NoToken || eos != NoToken:
				return unsupported("a Sequence in which several parts add tokens to a text",
					"at most one may add tokens")
			default:
				bos, eos = before, after
			}
		}
		return bos, eos, nil
	case "TemplateProcessing":
	default:
		return unsupported(fmt.Sprintf("type %q", def.Type),
			"supported are TemplateProcessing, ByteLevel and Sequence")
	}
	isText := func(p part) bool { return p.Sequence != nil && p.Sequence.ID == "A" }
	text := slices.IndexFunc(def.Single, isText)
	before, after := def.Single[:max(text, 0)], def.Single[text+1:]
	if text < 0 || len(before) > 1 || len(after) > 1 || slices.ContainsFunc(after, isText) {
		return unsupported("this template for a single text",
			"want the text A with at most one special token before it and one after it")
	}
	special := func(parts []part) (int32, error) {
		if len(parts) == 0 {
			return NoToken, nil
		}
		token := parts[0].SpecialToken
		if token == nil {
			return NoToken, errors.New("post_processor: " +
				"the template has a part that is neither a special token nor the text A")
		}
		ids := def.SpecialTokens[token.ID].IDs
		if len(ids) != 1 || ids[0] < 0 {
			return NoToken, fmt.Errorf("post_processor: the template has %q, "+
				"which must have exactly one id in special_tokens", token.ID)
		}
		return ids[0], nil
	}
	if bos, err = special(before); err == nil {
		eos, err = special(after)
	}
	return bos, eos, err
}
