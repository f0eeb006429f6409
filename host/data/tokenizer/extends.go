package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Extends returns nil if a tokenizer extends a base tokenizer only by added tokens, so that an id
// of the base has the same meaning in both. Otherwise the error describes a difference. Both
// arguments are contents of a tokenizer.json, or nil for [Bytes].
func Extends(more, base []byte) error {
	var defs [2]definition
	for i, text := range [][]byte{more, base} {
		if text == nil {
			var err error
			if text, err = BytesDefinition(); err != nil {
				return err
			}
		}
		if err := plainjson.Unmarshal(text, &defs[i]); err != nil {
			return err
		}
		m := &defs[i].Model
		// In accepted files these fields have no effect.
		m.Type, m.Prefix, m.Suffix, m.Dropout = "", nil, nil, nil
		m.UnkToken = cmp.Or(m.UnkToken, new(string))
	}
	a, b := &defs[0], &defs[1]
	for _, section := range []struct {
		name       string
		more, base any
	}{
		{"model", a.Model, b.Model}, {"normalizer", value(a.Normalizer), value(b.Normalizer)},
		{"pre_tokenizer", value(a.PreTokenizer), value(b.PreTokenizer)},
	} {
		if !reflect.DeepEqual(section.more, section.base) {
			return fmt.Errorf("the sections %s differ", section.name)
		}
	}
	// The base's added tokens must exist, and other added tokens must have new ids.
	added, owner := map[string]addedToken{}, map[int32]string{}
	for _, t := range a.AddedTokens {
		added[t.Content] = a.comparable(t)
	}
	for token, id := range b.Model.Vocab {
		owner[id] = token
	}
	for _, t := range b.AddedTokens {
		want := b.comparable(t)
		owner[want.ID] = t.Content
		if added[t.Content] != want {
			return fmt.Errorf("the added token %q with the id %d is missing or has other properties",
				t.Content, want.ID)
		}
	}
	for content, t := range added {
		if token, taken := owner[t.ID]; taken && token != content {
			return fmt.Errorf("the id %d belongs to %q instead of %q", t.ID, content, token)
		}
	}
	return nil
}

// value decodes a section, which must be valid JSON. It returns nil if the section is absent.
func value(section json.RawMessage) (v any) {
	_ = json.Unmarshal(section, &v)
	return v
}

// comparable returns t with its actual id, and without Special, which does not affect ids.
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
