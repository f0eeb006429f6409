package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/plainjson"
)

// setMarkers finds the begin and the end token, as LoadHuggingFace says.
func (t *HuggingFace) setMarkers(postProcessor json.RawMessage, config []byte) error {
	bos, eos := NoToken, NoToken
	if present(postProcessor) {
		var err error
		if bos, eos, err = templateMarkers(postProcessor); err != nil {
			return err
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
	Type          string            `json:"type"`
	Processors    []json.RawMessage `json:"processors"`
	Single        []templatePart    `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
}

type templatePart struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

// templateMarkers returns the tokens that a post-processor puts before and behind a single text, or
// NoToken.
func templateMarkers(section json.RawMessage) (bos, eos int32, err error) {
	var def postProcessor
	if err := plainjson.UnmarshalPart(section, &def); err != nil {
		return NoToken, NoToken, fmt.Errorf("post_processor: %w", err)
	}
	switch def.Type {
	case "ByteLevel": // which moves offsets only
		return NoToken, NoToken, nil
	case "Sequence":
		return sequenceMarkers(def.Processors)
	case "TemplateProcessing":
		return def.markers()
	}
	return NoToken, NoToken, &UnsupportedError{"post_processor", fmt.Sprintf("type %q", def.Type), "supported are TemplateProcessing, ByteLevel and Sequence"}
}

// sequenceMarkers are those of the one post-processor of several that has any.
func sequenceMarkers(sections []json.RawMessage) (bos, eos int32, err error) {
	bos, eos = NoToken, NoToken
	for _, section := range sections {
		before, behind, err := templateMarkers(section)
		switch {
		case err != nil:
			return NoToken, NoToken, err
		case before == NoToken && behind == NoToken:
		case bos != NoToken || eos != NoToken:
			return NoToken, NoToken, &UnsupportedError{"post_processor", "a Sequence in which several put tokens around a text", "one of them may"}
		default:
			bos, eos = before, behind
		}
	}
	return bos, eos, nil
}

// markers returns the tokens of the template of a single text.
func (p *postProcessor) markers() (bos, eos int32, err error) {
	isText := func(part templatePart) bool { return part.Sequence != nil && part.Sequence.ID == "A" }
	text := slices.IndexFunc(p.Single, isText)
	before, behind := p.Single[:max(text, 0)], p.Single[text+1:]
	if text < 0 || len(before) > 1 || len(behind) > 1 || slices.ContainsFunc(behind, isText) {
		return NoToken, NoToken, &UnsupportedError{"post_processor", "this template of a single text", "it may be the text A with at most one special token before it and one behind it"}
	}
	if bos, err = p.special(before, "begins"); err == nil {
		eos, err = p.special(behind, "ends")
	}
	return bos, eos, err
}

// special returns the id of the token that these parts of the template are, NoToken where there are
// none.
func (p *postProcessor) special(parts []templatePart, does string) (int32, error) {
	if len(parts) == 0 {
		return NoToken, nil
	}
	token := parts[0].SpecialToken
	if token == nil {
		return NoToken, fmt.Errorf("post_processor: the template %s with neither a special token nor the text A", does)
	}
	if ids := p.SpecialTokens[token.ID].IDs; len(ids) == 1 && ids[0] >= 0 {
		return ids[0], nil
	}
	return NoToken, fmt.Errorf("post_processor: the template %s with %q, which special_tokens does not give one id", does, token.ID)
}
