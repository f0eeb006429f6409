package tokenizer

import (
	"fmt"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// literal returns the expression that matches text itself.
func literal(text string) string { return regexp2.Escape(text) }

// expression returns the pattern as a regular expression.
func (p *pattern) expression() (string, error) {
	switch {
	case p.Regex != nil && *p.Regex != "":
		return *p.Regex, nil
	case p.String != nil && *p.String != "":
		return literal(*p.String), nil
	}
	return "", fmt.Errorf("pre_tokenizer: Split without a pattern")
}

// addSplit appends a cutter that cuts at the matches of expr.
//
// The expressions of published models need look-ahead, as `\s+(?!\S)`, which
// Go's regexp leaves out by design; hence a backtracking engine. Its dialect is
// set to that of the original library, where ^ and $ match at every line.
func (p *preTokenizer) addSplit(expr, behavior string, invert bool) error {
	join, ok := joiners[behavior]
	if !ok {
		return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("Split with behavior %q", behavior),
			"supported are Isolated, Removed, MergedWithPrevious and MergedWithNext"}
	}
	re, err := regexp2.Compile(expr, regexp2.Multiline)
	if err != nil {
		return fmt.Errorf("pre_tokenizer: pattern %q cannot be compiled: %w", expr, err)
	}
	p.cutters = append(p.cutters, func(dst []piece, p piece) ([]piece, error) {
		spans, err := findSpans(re, p.text)
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer: pattern %q: %w", expr, err)
		}
		if invert {
			for i := range spans {
				spans[i].match = !spans[i].match
			}
		}
		for _, s := range join(spans) {
			dst = append(dst, piece{p.text[s.start:s.end], p.first && s.start == 0})
		}
		return dst, nil
	})
	return nil
}

// span is a stretch of bytes that the pattern matched, or a gap between two.
type span struct {
	start, end int
	match      bool
}

// findSpans covers text with matches and the gaps between them. Empty matches
// cut nothing.
func findSpans(re *regexp2.Regexp, text string) ([]span, error) {
	runes := []rune(text)
	spans := make([]span, 0, len(text)/4+1)
	at, atRune := 0, 0 // how far text is covered, in bytes and in runes
	advance := func(toRune int) int {
		to := at
		for ; atRune < toRune; atRune++ {
			to += utf8.RuneLen(runes[atRune])
		}
		return to
	}
	err := re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		index, length, _ := m.GroupRange(0)
		if length == 0 {
			return true
		}
		if start := advance(index); start > at {
			spans = append(spans, span{at, start, false})
			at = start
		}
		end := advance(index + length)
		spans = append(spans, span{at, end, true})
		at = end
		return true
	})
	if err == nil && at < len(text) {
		spans = append(spans, span{at, len(text), false})
	}
	return spans, err
}

// joiners decides what becomes of matches.
var joiners = map[string]func([]span) []span{
	"Isolated": func(spans []span) []span { return spans },
	"Removed": func(spans []span) []span {
		kept := spans[:0]
		for _, s := range spans {
			if !s.match {
				kept = append(kept, s)
			}
		}
		return kept
	},
	// A match ends the gap before it; a second match in a row stands alone.
	"MergedWithPrevious": func(spans []span) []span {
		joined := spans[:0]
		previousMatch := false
		for _, s := range spans {
			if s.match && !previousMatch && len(joined) > 0 {
				joined[len(joined)-1].end = s.end
			} else {
				joined = append(joined, s)
			}
			previousMatch = s.match
		}
		return joined
	},
	// A match begins the gap after it; of several in a row the last one does.
	"MergedWithNext": func(spans []span) []span {
		joined := spans[:0]
		for i := 0; i < len(spans); i++ {
			s := spans[i]
			if s.match && i+1 < len(spans) && !spans[i+1].match {
				s.end = spans[i+1].end
				i++
			}
			joined = append(joined, s)
		}
		return joined
	},
}
