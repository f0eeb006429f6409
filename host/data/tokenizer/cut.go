package tokenizer

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// cutRule determines where a text can be cut without changing its ids.
//
// With a word pattern, that is between a character and the white space after it:
//   - before a space after any visible character, because in a match of these patterns a space
//     is either the first character or follows white space;
//   - before a line feed after a letter or a digit, for the same reason: line ends are matched
//     together with punctuation before them, but not with letters.
//
// The first part then ends in a visible character, which the look-ahead of the pattern does not
// pass, and the second begins a word. If tokens mark words, it is before a space that follows
// anything but white space or a mark. Unicode normalization has a boundary before either character.
//
// An added token must not be cut, nor be separated from white space that it strips on its right, or
// from a mark that is inserted before the text after it.
type cutRule struct {
	byPattern bool
	byMark    bool
	inner     []string // added tokens that contain a space or a line feed
	claiming  []string // added tokens after which no cut is allowed
}

func newCutRule(t *HuggingFace, def *definition) cutRule {
	c := cutRule{}
	for _, added := range def.AddedTokens {
		if len(added.Content) < 1 {
			continue
		}
		if added.RStrip && added.Normalized {
			return cutRule{} // cut nowhere
		}
		if added.RStrip {
			c.claiming = append(c.claiming, added.Content)
		}
		if !strings.ContainsAny(added.Content[1:], " \n"+spaceMark) {
			continue
		}
		if added.Normalized {
			return cutRule{} // its match may differ from its content
		}
		c.inner = append(c.inner, added.Content)
	}
	marks := t.pre.metaspace != nil || t.normalize.has("Replace")
	c.byPattern = t.pre.scan != nil && !t.pre.prefixSpace && t.normalize.composesOnly()
	c.byMark = t.model.cutsAtMarks && t.pre.scan == nil && !t.pre.byteLevel &&
		marks && !t.normalize.has("NFC")
	if c.byMark {
		for _, added := range def.AddedTokens {
			if added.Content != "" {
				c.claiming = append(c.claiming, added.Content)
			}
		}
	}
	return c
}

// Cut finds a position near the end of text at which it can be cut; see [Tokenizer].
func (t *HuggingFace) Cut(text []byte) int {
	c := &t.cuts
	if !c.byPattern && !c.byMark {
		return 0
	}
	for n := len(text) - 1; n > 0; n-- {
		if (text[n] == ' ' || text[n] == '\n') && c.cutAllowed(t, text, n) {
			return n
		}
	}
	return 0
}

// cutAllowed reports whether pattern and model allow a cut before text[n], white space, and no
// added token would be cut.
func (c *cutRule) cutAllowed(t *HuggingFace, text []byte, n int) bool {
	r, size := utf8.DecodeLastRune(text[:n])
	if r == utf8.RuneError && size < 2 || unicode.IsSpace(r) {
		return false
	}
	if c.byMark {
		if text[n] != ' ' || string(r) == spaceMark {
			return false
		}
	} else {
		if text[n] == '\n' {
			// The pattern sees normalized text, in which a letter may end with a combining mark,
			// which the pattern matches together with line ends.
			r, _ = utf8.DecodeLastRuneInString(t.normalize.apply(string(r), true))
		}
		before, _ := t.pre.scan.classAt(string(r), 0)
		if before != letter && before != number && (before != other || text[n] != ' ') {
			return false
		}
	}
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
