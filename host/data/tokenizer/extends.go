package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Extends returns nil if a tokenizer extends a base tokenizer only by added tokens: an id of the
// base has the same meaning in both. Otherwise the error describes the difference. Both are the
// contents of a tokenizer.json, nil for [Bytes].
func Extends(more, base []byte) error {
	var a, b definition
	for content, def := range map[*[]byte]*definition{&more: &a, &base: &b} {
		text := *content
		if text == nil {
			var err error
			if text, err = BytesDefinition(); err != nil {
				return err
			}
		}
		if err := plainjson.Unmarshal(text, def); err != nil {
			return err
		}
	}
	if err := a.Model.same(&b.Model); err != nil {
		return err
	}
	for name, of := range map[string][2]json.RawMessage{
		"normalizer": {a.Normalizer, b.Normalizer}, "pre_tokenizer": {a.PreTokenizer, b.PreTokenizer},
	} {
		var values [2]any
		for i, section := range of {
			if present(section) && json.Unmarshal(section, &values[i]) != nil {
				return fmt.Errorf("the section %s is no JSON", name)
			}
		}
		if !reflect.DeepEqual(values[0], values[1]) {
			return fmt.Errorf("the sections %s differ", name)
		}
	}
	// The base's added tokens must exist, and other added tokens must have new ids.
	byContent, owner := map[string]addedToken{}, map[int32]string{}
	for _, t := range a.AddedTokens {
		byContent[t.Content] = a.comparable(t)
	}
	for token, id := range b.Model.Vocab {
		owner[id] = token
	}
	for _, t := range b.AddedTokens {
		want := b.comparable(t)
		owner[want.ID] = t.Content
		if got, ok := byContent[t.Content]; !ok || got != want {
			return fmt.Errorf("only the latter has the added token %q as it is there, with the id %d",
				t.Content, want.ID)
		}
	}
	for _, t := range a.AddedTokens {
		id := byContent[t.Content].ID
		if token, taken := owner[id]; taken && token != t.Content {
			return fmt.Errorf("token %d is %q in the former, %q in the latter",
				id, t.Content, token)
		}
	}
	return nil
}

// same compares vocabularies, merges and settings, and returns an error if they differ.
func (m *modelDefinition) same(base *modelDefinition) error {
	first, of := int32(-1), ""
	for token, id := range base.Vocab {
		if got, ok := m.Vocab[token]; (!ok || got != id) && (of == "" || id < first) {
			first, of = id, token
		}
	}
	unknown := func(m *modelDefinition) string { return *cmp.Or(m.UnkToken, new(string)) }
	switch {
	case of != "":
		return fmt.Errorf("only the latter has %q as token %d", of, first)
	case len(m.Vocab) != len(base.Vocab):
		return fmt.Errorf("the vocabularies have %d and %d tokens", len(m.Vocab), len(base.Vocab))
	case !slices.Equal(m.Merges, base.Merges):
		return errors.New("the merges differ")
	case unknown(m) != unknown(base), m.FuseUnk != base.FuseUnk,
		m.ByteFallback != base.ByteFallback, m.IgnoreMerges != base.IgnoreMerges:
		return errors.New("the settings of the model differ")
	}
	return nil
}

// comparable returns an added token with its id, and without fields that do not affect ids.
func (d *definition) comparable(t addedToken) addedToken {
	if id, known := d.Model.Vocab[t.Content]; known {
		t.ID = id
	}
	t.Special = false
	return t
}

// Distinct returns the names of two tokenizers, with prefixes of their hashes if the names are
// equal.
func Distinct(a, b Info) (string, string) {
	if a.Name != b.Name {
		return a.Name, b.Name
	}
	full := func(i Info) string { return fmt.Sprintf("%s (%.8s)", i.Name, i.SHA256) }
	return full(a), full(b)
}
