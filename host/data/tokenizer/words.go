package tokenizer

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// wordPattern is a pattern of published tokenizers, matched by a function, which is several times
// as fast as a regular expression (see compile).
type wordPattern struct {
	// digits is the maximal number of digits in a word, but for GPT-2's pattern, which has no limit.
	digits int
	// next returns the end of the match that begins at text[at] or, if gaps is set, of the text before
	// the next match. Without gaps, the pattern matches at every position of every text.
	next func(s *scanner, text string, at int) int
	gaps bool
}

// PatternGPT2 is the built-in pattern of ByteLevel (GPT-2, Radford et al. 2019).
const PatternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|` +
	` ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// wordPatterns maps regular expressions to the functions that match them.
var wordPatterns = map[string]wordPattern{
	PatternGPT2:   {next: (*scanner).nextGPT2},
	PatternGPT4:   {digits: 3, next: (*scanner).nextGPT4},
	PatternQwen:   {digits: 1, next: (*scanner).nextGPT4},
	PatternDigit:  {digits: 1, next: (*scanner).nextNumber, gaps: true},
	patternDigits: {digits: 3, next: (*scanner).nextNumber, gaps: true},
}

// Patterns by which published tokenizers split text into words: the pattern of GPT-4, and variants
// that split numbers differently.
const (
	PatternGPT4 = beforeNumbers + patternDigits + afterNumbers // Llama 3 and OLMo 2, too
	PatternQwen = beforeNumbers + PatternDigit + afterNumbers  // Qwen 2 and later

	PatternDigit  = `\p{N}`
	patternDigits = `\p{N}{1,3}` // DeepSeek, before other patterns

	beforeNumbers = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|`
	afterNumbers  = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

func (s *scanner) nextGPT2(text string, at int) int {
	if end := contraction(text, at, false); end > 0 {
		return end
	}
	begin := at
	if text[at] == ' ' && at+1 < len(text) {
		begin++
	}
	if c, size := s.classAt(text, begin); c != space {
		return s.run(text, begin+size, c)
	}
	return s.white(text, at)
}

// nextGPT4 matches the pattern of GPT-4, with at most s.digits digits in a word.
func (s *scanner) nextGPT4(text string, at int) int {
	if end := contraction(text, at, true); end > 0 {
		return end
	}
	c, size := s.classAt(text, at)
	begin := at + size
	switch {
	case c == letter:
		return s.run(text, begin, letter)
	case c == number:
		return s.numbers(text, begin)
	case begin < len(text) && text[at] != '\r' && text[at] != '\n':
		next, nextSize := s.classAt(text, begin)
		if next == letter {
			return s.run(text, begin+nextSize, letter)
		}
		if next == other && text[at] == ' ' {
			return lineEnds(text, s.run(text, begin+nextSize, other))
		}
	}
	if c == other {
		return lineEnds(text, s.run(text, begin, other))
	}
	end := s.run(text, at, space)
	if last := strings.LastIndexAny(text[at:end], "\r\n"); last >= 0 {
		return at + last + 1
	}
	return s.white(text, at)
}

func (s *scanner) nextNumber(text string, at int) int {
	for begin := at; at < len(text); {
		c, size := s.classAt(text, at)
		if c == number && at == begin {
			return s.numbers(text, at+size)
		} else if c == number {
			break
		}
		at += size
	}
	return at
}

// numbers returns the end of a word whose first digit ends at text[at].
func (s *scanner) numbers(text string, at int) int {
	for n := 1; n < s.digits && at < len(text); n++ {
		c, size := s.classAt(text, at)
		if c != number {
			break
		}
		at += size
	}
	return at
}

// white matches \s+(?!\S)|\s+: a run of white space, without its last character if a character
// follows that may form a word with it.
func (s *scanner) white(text string, at int) int {
	end := s.run(text, at, space)
	if end == len(text) {
		return end
	}
	_, size := utf8.DecodeLastRuneInString(text[at:end])
	if end-size > at {
		return end - size
	}
	return end
}

func lineEnds(text string, at int) int {
	for at < len(text) && (text[at] == '\r' || text[at] == '\n') {
		at++
	}
	return at
}

// contraction returns the end of a match of 's|'t|'re|'ve|'m|'ll|'d at text[at:], or 0 if there is
// none. It ignores case if anyCase is set.
func contraction(text string, at int, anyCase bool) int {
	if text[at] != '\'' || at+1 == len(text) {
		return 0
	}
	lower := func(i int) byte {
		if i >= len(text) {
			return 0
		}
		if b := text[i]; !anyCase || b < 'A' || b > 'Z' {
			return b
		}
		return text[i] + 'a' - 'A'
	}
	second := lower(at + 2)
	switch lower(at + 1) {
	case 's', 't', 'm', 'd':
		return at + 2
	case 'r', 'v':
		if second == 'e' {
			return at + 3
		}
	case 'l':
		if second == 'l' {
			return at + 3
		}
	case "ſ"[0]: // the long s, whose upper case is S
		if anyCase && strings.HasPrefix(text[at+1:], "ſ") {
			return at + 1 + len("ſ")
		}
	}
	return 0
}

// class is a character class of the patterns. Every character is in one class.
type class uint8

const (
	other  class = iota
	letter       // \p{L}
	number       // \p{N}
	space        // \s
)

// classes holds the class of every character below U+10000.
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

type scanner struct {
	classes *[1 << 16]class
	wordPattern
}

// cut emits the matches of the pattern, and the gaps between them.
func (s *scanner) cut(text string, _ bool, emit func(string) error) error {
	for at := 0; at < len(text); {
		end := s.next(s, text, at)
		if err := emit(text[at:end]); err != nil {
			return err
		}
		at = end
	}
	return nil
}

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
