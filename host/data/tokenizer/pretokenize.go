package tokenizer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// piece is a part of the text; when all cutters have seen it, it is a word.
type piece struct {
	text  string
	first bool // at the beginning of the whole input
}

// cutter is a step of a pre-tokenizer.
type cutter struct {
	// cut cuts one piece and appends the parts.
	cut    func(dst []piece, p piece) ([]piece, error)
	words  *wordPattern // what the step does, if it is one of [wordPatterns]
	digits bool         // the step makes a piece of every digit
}

// preTokenizer cuts text into words: each cutter in turn sees every piece that
// the one before it made.
type preTokenizer struct {
	cutters   []cutter
	byteLevel bool // words are to be written in the byte-level alphabet

	// scan, if not nil, does what all cutters do; isolate is for it.
	scan    *scanner
	isolate bool
}

// The pattern that ByteLevel has built in (GPT-2, Radford et al. 2019).
const byteLevelPattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// newPreTokenizer builds the section "pre_tokenizer"; an absent one leaves the
// text in one piece.
func newPreTokenizer(section json.RawMessage) (*preTokenizer, error) {
	p := &preTokenizer{}
	list, err := flatten(section)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	for i := range list {
		if err := p.add(&list[i]); err != nil {
			return nil, err
		}
	}
	steps := p.cutters
	if len(steps) > 0 && steps[0].digits {
		p.isolate, steps = true, steps[1:]
	}
	if len(steps) == 1 && steps[0].words != nil {
		p.scan = &scanner{classes(), *steps[0].words}
	}
	return p, nil
}

func (p *preTokenizer) add(def *step) error {
	if p.byteLevel {
		return &UnsupportedError{"pre_tokenizer", def.Type + " after ByteLevel", "put ByteLevel last"}
	}
	switch {
	case def.Type == "ByteLevel":
		if def.AddPrefixSpace == nil || *def.AddPrefixSpace {
			p.cutters = append(p.cutters, cutter{cut: func(dst []piece, p piece) ([]piece, error) {
				if !strings.HasPrefix(p.text, " ") {
					p.text = " " + p.text
				}
				return append(dst, p), nil
			}})
		}
		p.byteLevel = true
		if def.UseRegex == nil || *def.UseRegex {
			return p.addSplit(byteLevelPattern, false)
		}
		return nil
	case def.Type == "Split":
		if def.Behavior != "Isolated" && (def.Behavior != "Removed" || !def.Invert) {
			return &UnsupportedError{"pre_tokenizer",
				fmt.Sprintf("Split with behavior %q, invert %v", def.Behavior, def.Invert),
				"supported are Isolated, and Removed with invert"}
		}
		if def.Pattern.Regex == nil || *def.Pattern.Regex == "" {
			return &UnsupportedError{"pre_tokenizer", "Split without a regular expression", "want Regex"}
		}
		return p.addSplit(*def.Pattern.Regex, def.Behavior == "Removed")
	case def.Type == "Digits" && def.IndividualDigits:
		err := p.addSplit(`\p{N}`, false)
		p.cutters[len(p.cutters)-1].digits = true
		return err
	case def.Type == "Metaspace":
		return p.addMetaspace(def)
	}
	return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("type %q", def.Type),
		"supported are ByteLevel, Split, Digits (individual), Metaspace and Sequence"}
}

// addMetaspace writes spaces as U+2581, puts one before the text, and cuts before each.
func (p *preTokenizer) addMetaspace(def *step) error {
	if err := checkMark("pre_tokenizer", def.Replacement); err != nil {
		return err
	}
	scheme := def.prependScheme()
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("prepend_scheme %q", scheme),
			"supported are always, first and never"}
	}
	split := def.Split == nil || *def.Split
	p.cutters = append(p.cutters, cutter{cut: func(dst []piece, p piece) ([]piece, error) {
		text, first := strings.ReplaceAll(p.text, " ", spaceMark), p.first
		prepend := scheme == "always" || scheme == "first" && p.first
		if prepend && !strings.HasPrefix(text, spaceMark) {
			text = spaceMark + text
		}
		for split && len(text) > 0 {
			i := strings.Index(text[1:], spaceMark)
			if i < 0 {
				break
			}
			dst = append(dst, piece{text[:1+i], first})
			text, first = text[1+i:], false
		}
		return append(dst, piece{text, first}), nil
	}})
	return nil
}

// prependScheme says where Metaspace puts a mark before a text: always, first or never.
func (s *step) prependScheme() string {
	switch {
	case s.PrependScheme != nil:
		return *s.PrependScheme
	case s.AddPrefixSpace != nil && !*s.AddPrefixSpace:
		return "never"
	}
	return "always"
}

// checkMark refuses a Metaspace that writes something else than U+2581 for a space.
func checkMark(section, mark string) error {
	if mark != "" && mark != spaceMark {
		return &UnsupportedError{section, fmt.Sprintf("Metaspace with the replacement %q", mark), "want ▁"}
	}
	return nil
}

// words cuts text; first says that it begins where the whole input begins.
func (p *preTokenizer) words(text string, first bool) ([]piece, error) {
	if text == "" {
		return nil, nil
	}
	pieces, next := []piece{{text, first}}, []piece(nil)
	for _, cut := range p.cutters {
		next = next[:0]
		for _, one := range pieces {
			var err error
			if next, err = cut.cut(next, one); err != nil {
				return nil, err
			}
		}
		pieces, next = next, pieces
	}
	return pieces, nil
}

// matchTimeout bounds the search for one match: by backtracking, some expressions take a time that
// is exponential in the length of the text, as (a+)+$.
var matchTimeout = 20 * time.Second

// addSplit appends a cutter that makes pieces of the matches of expr, and of what is between them
// unless onlyMatches is set.
//
// The expressions of published models need look-ahead, as `\s+(?!\S)`, which
// Go's regexp leaves out by design; hence a backtracking engine. Its dialect is
// set to that of the original library, where ^ and $ match at every line.
func (p *preTokenizer) addSplit(expr string, onlyMatches bool) error {
	if what := meansOther(expr); what != "" {
		return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("the pattern %q", expr),
			what + " has another meaning in the library that published models are made with"}
	}
	re, err := regexp2.Compile(expr, regexp2.Multiline)
	if err != nil {
		return fmt.Errorf("pre_tokenizer: pattern %q cannot be compiled: %w", expr, err)
	}
	re.MatchTimeout = matchTimeout
	step := cutter{cut: func(dst []piece, p piece) ([]piece, error) {
		err := eachStretch(re, p.text, func(start, end int, match bool) {
			if start < end && (match || !onlyMatches) {
				dst = append(dst, piece{p.text[start:end], p.first && start == 0})
			}
		})
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer: pattern %q: %w", expr, err)
		}
		return dst, nil
	}}
	if words, ok := wordPatterns[expr]; ok {
		step.words = &words
	}
	p.cutters = append(p.cutters, step)
	return nil
}

// multiline are flags with m, by which ^ and $ match at every line here, and a dot matches line
// feeds in Oniguruma.
var multiline = regexp.MustCompile(`^\(\?[a-zA-Z]*m`)

// meansOther names what an expression has that Oniguruma, the original library, reads in another
// way; "" for nothing.
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

// eachStretch calls use for the bytes of every match, and of every gap between two. An empty match
// cuts, too.
func eachStretch(re *regexp2.Regexp, text string, use func(start, end int, match bool)) error {
	runes := []rune(text)
	at, atRune := 0, 0 // how far text is covered, in bytes and in runes
	advance := func(toRune int, match bool) {
		start := at
		for ; atRune < toRune; atRune++ {
			at += utf8.RuneLen(runes[atRune])
		}
		use(start, at, match)
	}
	err := re.FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		index, length, _ := m.GroupRange(0)
		advance(index, false)
		advance(index+length, true)
		return true
	})
	if err != nil { // which can only be the timeout, with all of the text
		return fmt.Errorf("no match was found, nor that there is none, within %v in a text of %d bytes "+
			"that begins with %q: use another pattern, or leave the text out",
			re.MatchTimeout, len(text), text[:min(len(text), 40)])
	}
	advance(len(runes), false)
	return nil
}
