package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dlclark/regexp2/v2"
)

// preTokenizer cuts texts into words, by one step after the other.
type preTokenizer struct {
	byteLevel bool // words are written in the byte-level alphabet
	steps     []cut
	metaspace *metaspace // the only step, if not nil
}

// A cut calls emit for the parts of a text. first says whether the text begins the input.
type cut func(text string, first bool, emit func(part string) error) error

// metaspace replaces spaces by "▁".
type metaspace struct {
	scheme string // the texts that get a "▁" in front: always, first (of the input) or never
	split  bool   // a word begins at each "▁"
}

// newPreTokenizer parses the section "pre_tokenizer"; an absent one leaves the text in one piece. n
// normalizes the texts.
func newPreTokenizer(section json.RawMessage, n normalizer) (*preTokenizer, error) {
	p := &preTokenizer{}
	list, err := flatten(section)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	for _, step := range list {
		switch {
		case p.byteLevel:
			return nil, &UnsupportedError{"pre_tokenizer", step.Type + " after ByteLevel",
				"put ByteLevel last"}
		case step.Type == "Split" && len(list) == 1 && step.Pattern.is(" ") && n.replacesSpaces():
			// As in Gemma: there is no space left to split at.
		case step.Type == "Metaspace" && len(list) == 1:
			if p.metaspace, err = newMetaspace(step); err != nil {
				return nil, err
			}
			p.steps = append(p.steps, p.metaspace.cut)
		case step.Type == "Digits" || step.Type == "Split":
			if step.Type == "Digits" {
				digit := PatternDigit
				step.Pattern, step.Behavior = pattern{Regex: &digit}, "Contiguous"
				if step.IndividualDigits {
					step.Behavior = "Isolated"
				}
			}
			next, err := newSplit(step.Pattern, step.Behavior, step.Invert)
			if err != nil {
				return nil, err
			}
			p.steps = append(p.steps, next)
		case step.Type == "ByteLevel":
			p.byteLevel = true
			if step.AddPrefixSpace == nil || *step.AddPrefixSpace {
				p.steps = append(p.steps, spaced)
			}
			if step.UseRegex == nil || *step.UseRegex {
				p.steps = append(p.steps, (&scanner{classes(), wordPatterns[PatternGPT2]}).cut)
			}
		default:
			return nil, &UnsupportedError{"pre_tokenizer", fmt.Sprintf("type %q here", step.Type),
				"supported are Metaspace, or Digits, Split and ByteLevel"}
		}
	}
	return p, nil
}

func newMetaspace(s step) (*metaspace, error) {
	m := &metaspace{scheme: "always", split: s.Split == nil || *s.Split}
	if s.PrependScheme != nil {
		m.scheme = *s.PrependScheme
	} else if s.AddPrefixSpace != nil && !*s.AddPrefixSpace {
		m.scheme = "never"
	}
	if m.scheme != "always" && m.scheme != "first" && m.scheme != "never" {
		return nil, &UnsupportedError{"pre_tokenizer", fmt.Sprintf("prepend_scheme %q", m.scheme),
			"supported are always, first and never"}
	}
	return m, checkMark("pre_tokenizer", s.Replacement)
}

// checkMark rejects a Metaspace that replaces a space by a character other than U+2581.
func checkMark(section, mark string) error {
	if mark != "" && mark != spaceMark {
		feature := fmt.Sprintf("Metaspace with the replacement %q", mark)
		return &UnsupportedError{section, feature, "want ▁"}
	}
	return nil
}

// eachWord calls emit for the words of text; first says whether text is the beginning of the input.
func (p *preTokenizer) eachWord(text string, first bool, emit func(word string) error) error {
	return p.from(0, text, first, emit)
}

// from takes the steps from a number on.
func (p *preTokenizer) from(step int, text string, first bool, emit func(word string) error) error {
	switch {
	case text == "":
		return nil
	case step == len(p.steps):
		return emit(text)
	case step == len(p.steps)-1:
		return p.steps[step](text, first, emit)
	}
	return p.steps[step](text, first, func(part string) error {
		err := p.from(step+1, part, first, emit)
		first = false
		return err
	})
}

// spaced puts a space before a text, unless it begins with one.
func spaced(text string, _ bool, emit func(string) error) error {
	if text[0] != ' ' {
		text = " " + text
	}
	return emit(text)
}

func (m *metaspace) cut(text string, first bool, emit func(string) error) error {
	text = strings.ReplaceAll(text, " ", spaceMark)
	prepend := m.scheme == "always" || m.scheme == "first" && first
	if prepend && !strings.HasPrefix(text, spaceMark) {
		text = spaceMark + text
	}
	for m.split {
		i := strings.Index(text[1:], spaceMark)
		if i < 0 {
			break
		}
		if err := emit(text[:1+i]); err != nil {
			return err
		}
		text = text[1+i:]
	}
	return emit(text)
}

// joins says for each behavior of Split whether a part belongs to the part before it. The arguments
// say which of both are matches of the pattern. Removed leaves the matches out.
var joins = map[string]func(before, now bool) bool{
	"Removed":            func(before, now bool) bool { return false },
	"Isolated":           func(before, now bool) bool { return false },
	"Contiguous":         func(before, now bool) bool { return before == now },
	"MergedWithPrevious": func(before, now bool) bool { return now && !before },
	"MergedWithNext":     func(before, now bool) bool { return before && !now },
}

// newSplit returns the step that cuts a text at the matches of a pattern. With invert, what is
// between matches counts as the match.
func newSplit(p pattern, behavior string, invert bool) (cut, error) {
	if joins[behavior] == nil || p.String == nil && p.Regex == nil {
		return nil, &UnsupportedError{"pre_tokenizer",
			fmt.Sprintf("Split with behavior %q and such a pattern", behavior), "want a String or " +
				"Regex, and Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext"}
	}
	if p.String != nil {
		find, err := newFinder(regexp2.Escape(*p.String))
		return find.cut(behavior, invert), err
	}
	words, fast := wordPatterns[*p.Regex]
	if fast && (behavior == "Isolated" || !words.gaps && behavior == "Removed" && invert) {
		return (&scanner{classes(), words}).cut, nil
	}
	find, err := compile(*p.Regex)
	return find.cut(behavior, invert), err
}

func (find finder) cut(behavior string, invert bool) cut {
	join := joins[behavior]
	return func(text string, _ bool, emit func(string) error) error {
		begin, end, match := 0, 0, false // of the part that waits for the next one
		flush := func() error {
			if begin == end || match && behavior == "Removed" {
				return nil
			}
			return emit(text[begin:end])
		}
		add := func(to int, now bool) (err error) {
			if now = now != invert; !join(match, now) {
				err = flush()
				begin = end
			}
			end, match = to, now
			return err
		}
		err := find(text, func(from, to int) error {
			if from > end {
				if err := add(from, false); err != nil {
					return err
				}
			}
			return add(to, true)
		})
		if err == nil && end < len(text) {
			err = add(len(text), false)
		}
		if err != nil {
			return err
		}
		return flush()
	}
}
