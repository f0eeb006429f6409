package tokenizer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"

	"github.com/cage-qat/cage/internal/plainjson"
)

// piece is a part of the text; when all cutters have seen it, it is a word.
type piece struct {
	text  string
	first bool // at the beginning of the whole input
}

// cutter is a step of a pre-tokenizer.
type cutter struct {
	// cut cuts one piece and appends the parts.
	cut func(dst []piece, p piece) ([]piece, error)
	// words is not nil where that is what the step does.
	words *wordPattern
	// digits tells that the step makes a piece of every digit.
	digits bool
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

// step is a normalizer or a pre-tokenizer: the union of the supported ones.
type step struct {
	Type             string            `json:"type"`
	Normalizers      []json.RawMessage `json:"normalizers"`
	PreTokenizers    []json.RawMessage `json:"pretokenizers"`
	Prepend          string            `json:"prepend"`
	Pattern          pattern           `json:"pattern"`
	Content          string            `json:"content"`
	Behavior         string            `json:"behavior"`
	Invert           bool              `json:"invert"`
	AddPrefixSpace   *bool             `json:"add_prefix_space"`
	UseRegex         *bool             `json:"use_regex"`
	IndividualDigits bool              `json:"individual_digits"`
	Replacement      string            `json:"replacement"`
	PrependScheme    *string           `json:"prepend_scheme"`
	Split            *bool             `json:"split"`
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

// marksSpaces reports whether the step is a normalizer that writes a mark for a space.
func (s *step) marksSpaces() bool {
	return s.Type == "Replace" && s.Pattern.String != nil && *s.Pattern.String == " " && s.Content == spaceMark
}

// flatten lists the steps of a section, those of a Sequence in its place.
func flatten(section json.RawMessage) (steps []step, err error) {
	if !present(section) {
		return nil, nil
	}
	var one step
	if err := plainjson.UnmarshalPart(section, &one); err != nil {
		return nil, err
	}
	if one.Type != "Sequence" {
		return []step{one}, nil
	}
	for _, child := range append(one.Normalizers, one.PreTokenizers...) {
		more, err := flatten(child)
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	return steps, nil
}

// The pattern that ByteLevel has built in (GPT-2, Radford et al. 2019).
const byteLevelPattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// newPreTokenizer builds the section "pre_tokenizer"; an absent one leaves the
// text in one piece.
func newPreTokenizer(section json.RawMessage) (*preTokenizer, error) {
	p := &preTokenizer{}
	if !present(section) {
		return p, nil
	}
	if err := p.add(section); err != nil {
		return nil, err
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

// add appends the cutters of one section.
func (p *preTokenizer) add(section json.RawMessage) error {
	var def step
	if err := plainjson.UnmarshalPart(section, &def); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	if p.byteLevel {
		return &UnsupportedError{"pre_tokenizer", def.Type + " after ByteLevel", "put ByteLevel last"}
	}
	switch def.Type {
	case "Sequence":
		for _, child := range def.PreTokenizers {
			if err := p.add(child); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		return p.addByteLevel(&def)
	case "Split":
		if def.Pattern.String != nil && *def.Pattern.String != "" {
			return p.addCutter(literalFinder(*def.Pattern.String), def.Behavior, def.Invert)
		}
		if def.Pattern.Regex == nil || *def.Pattern.Regex == "" {
			return fmt.Errorf("pre_tokenizer: Split without a pattern")
		}
		return p.addSplit(*def.Pattern.Regex, def.Behavior, def.Invert)
	case "Digits":
		if def.IndividualDigits {
			err := p.addSplit(`\p{N}`, "Isolated", false)
			p.cutters[len(p.cutters)-1].digits = true
			return err
		}
		return p.addSplit(`\p{N}+`, "Isolated", false)
	case "Metaspace":
		return p.addMetaspace(&def)
	}
	return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("type %q", def.Type),
		"supported are ByteLevel, Split, Digits, Metaspace and Sequence"}
}

func (p *preTokenizer) addByteLevel(def *step) error {
	if def.AddPrefixSpace == nil || *def.AddPrefixSpace {
		p.cutters = append(p.cutters, cutter{cut: func(dst []piece, p piece) ([]piece, error) {
			if !strings.HasPrefix(p.text, " ") {
				p.text = " " + p.text
			}
			return append(dst, p), nil
		}})
	}
	if def.UseRegex == nil || *def.UseRegex {
		if err := p.addSplit(byteLevelPattern, "Isolated", false); err != nil {
			return err
		}
	}
	p.byteLevel = true
	return nil
}

// addMetaspace writes spaces as a visible character (U+2581 by default), puts
// one before the text, and cuts before each.
func (p *preTokenizer) addMetaspace(def *step) error {
	mark, err := metaspaceMark("pre_tokenizer", def.Replacement)
	if err != nil {
		return err
	}
	scheme := def.prependScheme()
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return &UnsupportedError{"pre_tokenizer", fmt.Sprintf("prepend_scheme %q", scheme), "supported are always, first and never"}
	}
	p.cutters = append(p.cutters, cutter{cut: func(dst []piece, p piece) ([]piece, error) {
		p.text = strings.ReplaceAll(p.text, " ", mark)
		if !strings.HasPrefix(p.text, mark) && (scheme == "always" || scheme == "first" && p.first) {
			p.text = mark + p.text
		}
		return append(dst, p), nil
	}})
	if def.Split == nil || *def.Split {
		return p.addCutter(literalFinder(mark), "MergedWithNext", false)
	}
	return nil
}

// words cuts text; first says that it begins where the whole input begins. The words have
// at most left bytes, which then are fewer.
func (p *preTokenizer) words(text string, first bool, left *int) ([]piece, error) {
	if text == "" {
		return nil, nil
	}
	pieces, next := []piece{{text, first}}, []piece(nil)
	size := len(text) // of the pieces: cutters put marks before them
	for _, cut := range p.cutters {
		next, size = next[:0], 0
		for _, one := range pieces {
			var err error
			before := len(next)
			if next, err = cut.cut(next, one); err != nil {
				return nil, err
			}
			for _, part := range next[before:] {
				size += len(part.text)
			}
			if size > *left {
				return nil, &growthError{"pre_tokenizer"}
			}
		}
		pieces, next = next, pieces
	}
	*left -= size
	return pieces, nil
}

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
