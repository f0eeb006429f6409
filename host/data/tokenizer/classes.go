package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is what the patterns of published tokenizers tell characters apart by. Every
// character has one.
type class uint8

const (
	other  class = iota
	letter       // \p{L}
	number       // \p{N}
	space        // \s
)

// classes has the class of every character below U+10000.
var classes = sync.OnceValue(func() *[1 << 16]class {
	table := new([1 << 16]class)
	for r := range rune(len(table)) {
		table[r] = lookUp(r)
	}
	return table
})

func lookUp(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// scanner finds out where words end.
type scanner struct {
	classes *[1 << 16]class
	wordPattern
}

// classAt returns the class and the length of the character at a place in text.
func (s *scanner) classAt(text string, at int) (class, int) {
	if b := text[at]; b < utf8.RuneSelf {
		return s.classes[b], 1
	}
	r, size := utf8.DecodeRuneInString(text[at:])
	if int(r) < len(s.classes) {
		return s.classes[r], size
	}
	return lookUp(r), size
}

// run returns where a run of characters of one class ends that begins at a place in text.
func (s *scanner) run(text string, at int, of class) int {
	for at < len(text) {
		c, size := s.classAt(text, at)
		if c != of {
			break
		}
		at += size
	}
	return at
}
