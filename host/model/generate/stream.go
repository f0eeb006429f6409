package generate

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/safetext"
)

// Stream decodes tokens to text as they arrive.
type Stream struct {
	Tokenizer tokenizer.Tokenizer
	Before    []int32 // tokens before the first one
	Emit      func(text string) error
	Until     []string // stop strings, which end the text and are not part of it
	last      []int32  // tokens directly before ids; nil: Before
	ids       []int32  // the last tokens, whose text is not complete and not in held
	held      string   // text before that of ids, possibly the beginning of a stop string
	past      int      // bytes of text before held
	sent      int      // bytes of text sent so far
}

// Add sends the text that a token completes. The bytes of a character may be split across tokens:
// incomplete characters are held back, and so is a possible beginning of a stop string.
func (s *Stream) Add(_ int, token int32) error {
	if s.Emit == nil && len(s.Until) == 0 {
		return nil
	}
	if s.last == nil {
		s.last = s.Before
	}
	// Only a few tokens are decoded, so that the time per token does not grow with the text.
	s.ids = append(s.ids, token)
	more, err := Following(s.Tokenizer, s.last, s.ids)
	if err != nil {
		return err
	}
	text := s.held + more
	if cut, ended := cutAt(text, s.Until); ended {
		if err := s.send(cut); err != nil {
			return err
		}
		return ErrStop
	}
	whole := trimPartialCharacter(text)
	if err := s.send(trimPartialEnd(whole, s.Until)); err != nil {
		return err
	}
	if whole == text && more != "" {
		s.last, s.ids = s.ids, nil
		s.held, s.past = text[min(s.sent-s.past, len(text)):], s.sent
	}
	return nil
}

func cutAt(text string, ends []string) (cut string, ended bool) {
	cut = text
	for _, end := range ends {
		if before, _, found := strings.Cut(cut, end); found {
			cut, ended = before, true
		}
	}
	return cut, ended
}

// trimPartialEnd removes a possible beginning of a stop string from the end of a text.
func trimPartialEnd(text string, ends []string) string {
	longest := 0
	for _, end := range ends {
		for n := min(len(end)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, end[:n]) {
				longest = n
			}
		}
	}
	return text[:len(text)-longest]
}

// trimPartialCharacter removes an incomplete character from the end of a text: its first bytes, or
// the replacement character that a tokenizer returns for them.
func trimPartialCharacter(text string) string {
	text = strings.TrimRight(text, string(utf8.RuneError))
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRuneInString(text[i:]) {
				return text[:i]
			}
			break
		}
	}
	return text
}

// send sends a text that begins after past bytes, except what was sent of it before.
func (s *Stream) send(text string) error {
	if len(text) <= s.sent-s.past {
		return nil
	}
	more := text[s.sent-s.past:]
	s.sent += len(more)
	if s.Emit == nil {
		return nil
	}
	return s.Emit(more)
}

// LastOf returns the last element of ids, the tokens of text, in a slice. It returns nil if text is
// empty, since the only id could then be the BOS token.
func LastOf(text string, ids []int32) []int32 {
	if text == "" {
		return nil
	}
	return ids[len(ids)-1:]
}

// Following returns the text of ids when they follow the tokens in prefix. Some tokenizers omit the
// space in front of the first word of a text, which would otherwise be missing between the two.
func Following(tok tokenizer.Tokenizer, prefix, ids []int32) (string, error) {
	if len(prefix) > 0 {
		head, err := tok.Decode(prefix)
		if err != nil {
			return "", err
		}
		whole, err := tok.Decode(slices.Concat(prefix, ids))
		if text, ok := strings.CutPrefix(whole, head); ok || err != nil {
			return text, err
		}
	}
	return tok.Decode(ids)
}

// Finish returns the text of all tokens as valid UTF-8, and sends any text still held back.
func (s *Stream) Finish(ids []int32) (string, error) {
	text, err := Following(s.Tokenizer, s.Before, ids)
	if err != nil {
		return "", err
	}
	text, _ = cutAt(text, s.Until)
	s.past = 0
	return safetext.Valid(text), s.send(text)
}
