package tokenizer

import "strings"

// spaceMark is how tokenizers in the manner of SentencePiece write a space.
const spaceMark = "\u2581"

// marksWords tells whether every token has its marks in front. Then nothing is ever
// joined across a place where a mark follows another character, and the text between two
// such places can be encoded by itself: without that, a whole document is one word.
func (m *bpe) marksWords() bool {
	if _, ok := m.vocab[spaceMark]; !ok || m.ignoreMerges {
		return false
	}
	names := make(map[int32]string, len(m.vocab))
	for token, id := range m.vocab {
		names[id] = token
	}
	for _, joined := range m.merges {
		if strings.Contains(strings.TrimLeft(names[joined.id], spaceMark), spaceMark) {
			return false
		}
	}
	return true
}

// eachMarked calls emit for the parts of text that begin where a mark follows another
// character.
func eachMarked(text, mark string, emit func(word string) error) error {
	for len(text) > 0 {
		at := len(text) - len(strings.TrimLeft(text, mark))
		if i := strings.Index(text[at:], mark); i >= 0 {
			at += i
		} else {
			at = len(text)
		}
		if err := emit(text[:at]); err != nil {
			return err
		}
		text = text[at:]
	}
	return nil
}
