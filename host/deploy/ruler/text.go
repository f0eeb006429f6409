package ruler

import (
	"strings"
	"unicode"
)

// isSpace tells what is white space to Python: to it, unlike to Unicode, four separators
// among the control characters are, too.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// splitSpace cuts a text at its white space, as Python's re.sub(r'\s+', ' ', text).split(' '):
// white space at an end leaves an empty word there.
func splitSpace(text string) []string {
	list := strings.FieldsFunc(text, isSpace)
	if strings.TrimLeftFunc(text, isSpace) != text {
		list = append([]string{""}, list...)
	}
	if strings.TrimRightFunc(text, isSpace) != text || len(list) == 0 {
		list = append(list, "")
	}
	return list
}

// splitSentences cuts a text behind each . ! or ? that white space follows, which is
// dropped. RULER cuts with the trained model punkt of NLTK, which knows abbreviations.
func splitSentences(text string) []string {
	text = strings.TrimFunc(text, isSpace)
	var list []string
	begin, last := 0, rune(0)
	for i, r := range text {
		if isSpace(r) && strings.ContainsRune(".!?", last) {
			list = append(list, text[begin:i])
			begin = i + len(text[i:]) - len(strings.TrimLeftFunc(text[i:], isSpace))
		}
		last = r
	}
	if begin < len(text) {
		list = append(list, text[begin:])
	}
	return list
}
