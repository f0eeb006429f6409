package tokenizer

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// matchTimeout bounds the search for one match: by backtracking, some expressions take a time that is exponential in the
// length of the text, as (a+)+$.
var matchTimeout = 20 * time.Second

// addSplit appends a cutter that cuts at the matches of expr.
//
// The expressions of published models need look-ahead, as `\s+(?!\S)`, which
// Go's regexp leaves out by design; hence a backtracking engine. Its dialect is
// set to that of the original library, where ^ and $ match at every line.
func (p *preTokenizer) addSplit(expr, behavior string, invert bool) error {
	if what := meansOther(expr); what != "" {
		return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("the pattern %q", expr), what + " has another meaning in the library that published models are made with"}
	}
	re, err := regexp2.Compile(expr, regexp2.Multiline)
	if err != nil {
		return fmt.Errorf("pre_tokenizer: pattern %q cannot be compiled: %w", expr, err)
	}
	re.MatchTimeout = matchTimeout
	err = p.addCutter(func(text string) ([]stretch, error) {
		stretches, err := findStretches(re, text)
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer: pattern %q: %w", expr, err)
		}
		return stretches, nil
	}, behavior, invert)
	if words, ok := wordPatterns[expr]; ok && err == nil && (behavior == "Isolated" && !invert || behavior == "Removed" && invert) {
		p.cutters[len(p.cutters)-1].words = &words
	}
	return err
}

// multiline are flags with m, by which ^ and $ match at every line here, and a dot matches line feeds in Oniguruma.
var multiline = regexp.MustCompile(`^\(\?[a-zA-Z]*m`)

// meansOther names what an expression has that Oniguruma, the original library, reads in another way; "" for nothing.
func meansOther(expr string) string {
	class := false
	for i := 0; i < len(expr); i++ {
		rest := expr[i:]
		switch {
		case expr[i] == '\\':
			i++
		case class && expr[i] == '[':
			return "a class in a class"
		case class && strings.HasPrefix(rest, "&&"):
			return "&& in a class"
		case expr[i] == '[':
			class = true
			if strings.HasPrefix(rest, "[^") {
				i++
			}
		case expr[i] == ']':
			class = false
		case !class && strings.HasPrefix(rest, "{,"):
			return "{,"
		case !class && multiline.MatchString(rest):
			return "(?m"
		case !class && strings.HasPrefix(rest, "(?i") && strings.ContainsAny(expr, "ßẞ"):
			return "ß without regard to case"
		}
	}
	return ""
}

// addCutter appends a cutter that cuts at what find matches.
func (p *preTokenizer) addCutter(find func(text string) ([]stretch, error), behavior string, invert bool) error {
	join, ok := joiners[behavior]
	if !ok {
		return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("Split with behavior %q", behavior),
			"supported are Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous"}
	}
	p.cutters = append(p.cutters, cutter{cut: func(dst []piece, p piece) ([]piece, error) {
		stretches, err := find(p.text)
		if err != nil {
			return nil, err
		}
		if invert {
			for i := range stretches {
				stretches[i].match = !stretches[i].match
			}
		}
		for _, s := range join(stretches) {
			if s.start < s.end {
				dst = append(dst, piece{p.text[s.start:s.end], p.first && s.start == 0})
			}
		}
		return dst, nil
	}})
	return nil
}

// stretch is a run of bytes that the pattern matched, or a gap between two.
type stretch struct {
	start, end int
	match      bool
}

// literalFinder covers a text with the places where a literal stands, and the gaps.
func literalFinder(literal string) func(text string) ([]stretch, error) {
	return func(text string) (stretches []stretch, err error) {
		for at := 0; at < len(text); {
			i := strings.Index(text[at:], literal)
			if i < 0 {
				return append(stretches, stretch{at, len(text), false}), nil
			}
			if i > 0 {
				stretches = append(stretches, stretch{at, at + i, false})
			}
			at += i + len(literal)
			stretches = append(stretches, stretch{at - len(literal), at, true})
		}
		return stretches, nil
	}
}

// findStretches covers text with matches and the gaps between them. An empty match cuts, too, unless it stands
// right behind another match.
func findStretches(re *regexp2.Regexp, text string) ([]stretch, error) {
	runes := []rune(text)
	stretches := make([]stretch, 0, len(text)/4+1)
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
		start, last := advance(index), len(stretches)-1
		if length == 0 && start == at && last >= 0 && stretches[last].match {
			return true
		}
		if start > at {
			stretches = append(stretches, stretch{at, start, false})
			at = start
		}
		end := advance(index + length)
		stretches = append(stretches, stretch{at, end, true})
		at = end
		return true
	})
	if err != nil { // which can only be the timeout, with all of the text
		return nil, fmt.Errorf("no match was found, nor that there is none, within %v in a text of %d bytes that begins with %q: use another pattern, or leave the text out",
			re.MatchTimeout, len(text), text[:min(len(text), 40)])
	}
	if at < len(text) {
		stretches = append(stretches, stretch{at, len(text), false})
	}
	return stretches, nil
}

// joiners join matches with the gaps beside them, by the behavior that a Split names.
var joiners = map[string]func([]stretch) []stretch{
	"Contiguous": func(stretches []stretch) []stretch {
		joined := stretches[:0]
		for _, s := range stretches {
			if last := len(joined) - 1; last >= 0 && joined[last].match == s.match {
				joined[last].end = s.end
			} else {
				joined = append(joined, s)
			}
		}
		return joined
	},
	"Isolated": func(stretches []stretch) []stretch { return stretches },
	"Removed": func(stretches []stretch) []stretch {
		kept := stretches[:0]
		for _, s := range stretches {
			if !s.match {
				kept = append(kept, s)
			}
		}
		return kept
	},
	// A match ends the gap before it; a second match in a row stands alone.
	"MergedWithPrevious": func(stretches []stretch) []stretch {
		joined := stretches[:0]
		previousMatch := false
		for _, s := range stretches {
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
	"MergedWithNext": func(stretches []stretch) []stretch {
		joined := stretches[:0]
		for i := 0; i < len(stretches); i++ {
			s := stretches[i]
			if s.match && i+1 < len(stretches) && !stretches[i+1].match {
				s.end = stretches[i+1].end
				i++
			}
			joined = append(joined, s)
		}
		return joined
	},
}
