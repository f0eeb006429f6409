package chat

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
)

// Marks selects the treatment of a template's delimiters, such as <|im_end|>, that are not tokens
// of the tokenizer.
type Marks string

// With RefuseMarks they are an error: a model would learn each as several ordinary tokens. With
// AddMarks they are added to the tokenizer as tokens, and with PlainMarks they stay ordinary text.
const (
	RefuseMarks Marks = "error"
	AddMarks    Marks = "add"
	PlainMarks  Marks = "plain"
)

// AddedToken is a token that was added to a tokenizer.
type AddedToken struct {
	ID      int    `json:"id"`
	Content string `json:"content"`
}

var markPattern = regexp.MustCompile(`<\|[A-Za-z0-9_.-]+\|>`)

// plainMarks lists the built-in templates whose delimiters are ordinary text in the models that use
// them.
var plainMarks = []string{"tulu"}

// withMarks returns a tokenizer for the template: the given one, or one with the delimiters added
// as tokens.
func (t *Template) withMarks(
	tok tokenizer.Tokenizer, marks Marks,
) (tokenizer.Tokenizer, []AddedToken, error) {
	hub, ok := tok.(*tokenizer.HuggingFace)
	if !ok && marks == AddMarks {
		return nil, nil, fmt.Errorf("tokens cannot be added to the tokenizer %s: "+
			"it has no tokenizer.json", tok.Info().Name)
	}
	plain := t.ofItsModel || slices.Contains(plainMarks, t.Name)
	if !ok || marks == PlainMarks || marks == RefuseMarks && plain {
		return tok, nil, nil
	}
	var missing []string // delimiters that are not single tokens
	for _, mark := range markPattern.FindAllString(t.Source, -1) {
		ids, err := hub.Encode(mark)
		if err != nil {
			return nil, nil, err
		}
		if len(ids) != 1 && !slices.Contains(missing, mark) {
			missing = append(missing, mark)
		}
	}
	if len(missing) == 0 {
		return tok, nil, nil
	}
	if marks == RefuseMarks {
		return nil, nil, fmt.Errorf("template %s writes %s, of which the tokenizer %s "+
			"makes several ordinary tokens: --add-tokens adds tokens for them, "+
			"--plain-marks trains on them as they are, "+
			"and other templates (%s) may have marks that are tokens",
			t.Name, strings.Join(missing, " and "), tok.Info().Name, strings.Join(BuiltIn(), ", "))
	}
	more, err := hub.WithTokens(missing)
	if err != nil {
		return nil, nil, err
	}
	var added []AddedToken
	for _, mark := range missing {
		ids, err := more.Encode(mark)
		if err == nil && len(ids) != 1 {
			err = fmt.Errorf("tokenizer %s: %s cannot be added, "+
				"because another of its tokens comes first in it", tok.Info().Name, mark)
		}
		if err != nil {
			return nil, nil, err
		}
		added = append(added, AddedToken{int(ids[0]), mark})
	}
	return more, added, nil
}
