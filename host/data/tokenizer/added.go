package tokenizer

import (
	"sort"
	"strings"
	"unicode"
)

// addedToken is a token that is cut out of the text as a whole before anything
// else looks at it.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
}

// addedSet finds added tokens: the leftmost, and of those the longest.
type addedSet struct {
	byFirst [256][]addedToken
	empty   bool
}

func newAddedSet(tokens []addedToken) *addedSet {
	set := &addedSet{empty: true}
	for _, t := range tokens {
		if t.Content == "" {
			continue
		}
		set.byFirst[t.Content[0]] = append(set.byFirst[t.Content[0]], t)
		set.empty = false
	}
	for _, list := range set.byFirst {
		sort.SliceStable(list, func(i, j int) bool { return len(list[i].Content) > len(list[j].Content) })
	}
	return set
}

// split calls text for every stretch between added tokens and token for every
// added token, in order. White space that an added token claims (lstrip,
// rstrip) belongs to it.
func (s *addedSet) split(input string, text func(start, end int) error, token func(id int32)) error {
	done := 0
	for i := 0; i < len(input) && !s.empty; {
		t := s.match(input[i:])
		if t == nil {
			i++
			continue
		}
		start, end := i, i+len(t.Content)
		if t.LStrip {
			start = done + len(strings.TrimRightFunc(input[done:start], unicode.IsSpace))
		}
		if t.RStrip {
			end = len(input) - len(strings.TrimLeftFunc(input[end:], unicode.IsSpace))
		}
		if start > done {
			if err := text(done, start); err != nil {
				return err
			}
		}
		token(t.ID)
		done, i = end, end
	}
	if done < len(input) {
		return text(done, len(input))
	}
	return nil
}

func (s *addedSet) match(input string) *addedToken {
	list := s.byFirst[input[0]]
	for i := range list {
		if strings.HasPrefix(input, list[i].Content) {
			return &list[i]
		}
	}
	return nil
}
