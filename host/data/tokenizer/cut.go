package tokenizer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// cutRule says where a text can be cut without any effect on its ids.
//
// With a word pattern, that is between a character and the white space behind it:
//   - before a space whatever visible character precedes it, because in a match of these
//     patterns a space is either the first character or follows on white space;
//   - before a line feed that follows a letter or a digit, for the same reason: line ends
//     are matched together with punctuation before them, but not with letters.
//
// What comes first then ends in a visible character, so that no look-ahead of the pattern
// reaches beyond it, and what follows begins a word. Where tokens mark words, it is before
// a space that follows anything but white space or a mark. Unicode normalization has a
// boundary before either character.
//
// An added token must not be cut, nor lose white space that it claims on its right, or
// a mark that is put before the text behind it.
type cutRule struct {
	byPattern bool
	byMark    bool
	inner     []string // added tokens that have a space or a line feed within
	claiming  []string // added tokens behind which there must be no cut
}

func newCutRule(t *HuggingFace, def *definition) cutRule {
	c := cutRule{}
	for _, added := range def.AddedTokens {
		if len(added.Content) < 1 {
			continue
		}
		if added.RStrip && added.Normalized {
			return cutRule{} // as below
		}
		if added.RStrip {
			c.claiming = append(c.claiming, added.Content)
		}
		if !strings.ContainsAny(added.Content[1:], " \n") && !strings.Contains(added.Content[1:], spaceMark) {
			continue
		}
		if added.Normalized {
			return cutRule{} // it may stand for other text than its own
		}
		c.inner = append(c.inner, added.Content)
	}
	c.byPattern = t.pre.scan != nil && t.composesOnly
	c.byMark = !c.byPattern && t.model.wordMark != "" && marksSpaces(def)
	if c.byMark {
		for _, added := range def.AddedTokens {
			if added.Content != "" {
				c.claiming = append(c.claiming, added.Content)
			}
		}
	}
	return c
}

// Cut finds a place near the end of text at which it can be cut; see [Tokenizer].
func (t *HuggingFace) Cut(text []byte) int {
	c := &t.cuts
	if !c.byPattern && !c.byMark {
		return 0
	}
	for n := len(text) - 1; n > 0; n-- {
		if (text[n] == ' ' || text[n] == '\n') && c.cutAllowed(t, text, n) && c.keepsTokens(text, n) {
			return n
		}
	}
	return 0
}

// cutAllowed reports whether pattern and model allow a cut before text[n], white space.
func (c *cutRule) cutAllowed(t *HuggingFace, text []byte, n int) bool {
	r, size := utf8.DecodeLastRune(text[:n])
	if r == utf8.RuneError && size < 2 || unicode.IsSpace(r) {
		return false
	}
	if c.byMark {
		return text[n] == ' ' && string(r) != spaceMark
	}
	if text[n] == '\n' { // the pattern sees normalized text, in which a letter may end with a mark, to which line ends belong
		r, _ = utf8.DecodeLastRuneInString(t.normalize(string(r), true))
	}
	before, _ := t.pre.scan.classAt(string(r), 0)
	return before == letter || before == number || before == other && text[n] == ' '
}

// keepsTokens reports whether no added token would be cut before text[n].
func (c *cutRule) keepsTokens(text []byte, n int) bool {
	for _, content := range c.claiming {
		if bytes.HasSuffix(text[:n], []byte(content)) {
			return false
		}
	}
	for _, content := range c.inner {
		for k := 1; k < len(content); k++ {
			if content[k] == text[n] && bytes.HasSuffix(text[:n], []byte(content[:k])) {
				return false
			}
		}
	}
	return true
}

// normalizesOnly reports whether a normalizer is of the given types or there is none.
func normalizesOnly(section json.RawMessage, types ...string) bool {
	steps, err := flatten(section)
	for _, step := range steps {
		if !slices.Contains(types, step.Type) {
			return false
		}
	}
	return err == nil
}

// marksSpaces reports whether spaces become marks, and nothing else happens to a text but
// that a mark is put before it: by the normalizer, or by a pre-tokenizer Metaspace.
func marksSpaces(def *definition) bool {
	marks := false
	normalizers, err := flatten(def.Normalizer)
	for _, step := range normalizers {
		if step.Type == "NFC" {
			return false
		}
		marks = marks || step.Type == "Replace"
	}
	cutters, errCutters := flatten(def.PreTokenizer)
	for _, step := range cutters {
		if step.Type != "Metaspace" {
			return false
		}
		marks = true
	}
	return marks && err == nil && errCutters == nil
}
