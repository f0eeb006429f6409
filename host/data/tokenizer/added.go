package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// addedToken is a token that is matched as a whole, before the text is split into words.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// addedSet finds the leftmost added token in a text, and the longest one of those that begin there.
type addedSet struct {
	tokens  map[string]addedToken
	lengths [256][]int // of the tokens that begin with a byte, longest first
}

func newAddedSet(tokens []addedToken) *addedSet {
	set := &addedSet{tokens: map[string]addedToken{}}
	for _, t := range tokens {
		if _, again := set.tokens[t.Content]; t.Content == "" || again {
			continue
		}
		set.tokens[t.Content] = t
		lengths := &set.lengths[t.Content[0]]
		if !slices.Contains(*lengths, len(t.Content)) {
			*lengths = append(*lengths, len(t.Content))
		}
	}
	for _, lengths := range set.lengths {
		slices.SortFunc(lengths, func(a, b int) int { return b - a })
	}
	return set
}

// prefix returns the longest token with which text begins.
func (s *addedSet) prefix(text string) (t addedToken, ok bool) {
	for _, n := range s.lengths[text[0]] {
		if n <= len(text) {
			if t, ok = s.tokens[text[:n]]; ok {
				break
			}
		}
	}
	return t, ok
}

// split passes the ranges between added tokens to emitText and the added tokens to emitToken, in
// order. White space that an added token strips (lstrip, rstrip) belongs to it.
func (s *addedSet) split(
	input string, emitText func(start, end int) error, emitToken func(id int32),
) error {
	done := 0
	for i := 0; len(s.tokens) > 0 && i < len(input); {
		t, ok := s.prefix(input[i:])
		if !ok {
			i++
			continue
		}
		start, end := i, i+len(t.Content)
		i = end
		if t.LStrip && done < start {
			start = done + len(strings.TrimRightFunc(input[done:start], unicode.IsSpace))
		}
		if t.RStrip {
			end = len(input) - len(strings.TrimLeftFunc(input[end:], unicode.IsSpace))
		}
		if start > done {
			if err := emitText(done, start); err != nil {
				return err
			}
		}
		emitToken(t.ID)
		done = end
	}
	if done < len(input) {
		return emitText(done, len(input))
	}
	return nil
}

// WithTokens returns a copy of the tokenizer with special tokens added. Their ids follow the number
// of tokens, as in the reference library, even if ids before are unused. A token that is already in
// the vocabulary keeps its id. In the definition, the tokens are appended to added_tokens.
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
	next := int32(len(t.tokens))
	for _, content := range contents {
		id, exists := t.find(content)
		if !exists {
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
	more, err := ReadHuggingFace(definition, nil)
	if err != nil {
		return nil, err
	}
	more.info.Name = t.info.Name
	return more, more.setBoundaries(t.info.BOS, t.info.EOS)
}

func encoded(value any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(value)
	return out.Bytes(), err
}
