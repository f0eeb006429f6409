package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// WithTokens returns the tokenizer with special tokens added. Their ids follow the largest one that it has; a token that
// stands in the vocabulary, where texts only reach it by merges, keeps its id. The definition is that of the tokenizer with
// the tokens in added_tokens.
func (t *HuggingFace) WithTokens(contents []string) (*HuggingFace, error) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(t.definition, &file); err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if added := file["added_tokens"]; present(added) {
		if err := json.Unmarshal(added, &list); err != nil {
			return nil, fmt.Errorf("added_tokens: %w", err)
		}
	}
	next := int32(t.info.VocabSize)
	for _, content := range contents {
		id, there := t.find(content)
		if !there {
			id = next
			next++
		}
		entry, err := encoded(addedToken{ID: id, Content: content, Special: true})
		if err != nil {
			return nil, err
		}
		list = append(list, entry)
	}
	var err error
	if file["added_tokens"], err = encoded(list); err != nil {
		return nil, err
	}
	definition, err := encoded(file)
	if err != nil {
		return nil, err
	}
	more, err := newHuggingFace(definition, nil)
	if err != nil {
		return nil, err
	}
	more.info.Name = t.info.Name
	return more, more.accept(t.info.BOS, t.info.EOS)
}

// encoded is a value as JSON, in which < and > stay as they are.
func encoded(value any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(value)
	return out.Bytes(), err
}
