package chat

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
)

// Delimiters selects the treatment of a template's delimiters, such as <|im_end|>, that are not
// tokens of the tokenizer.
type Delimiters string

// Possible values of Delimiters.
const (
	RefuseDelimiters Delimiters = "error" // a model would learn each as several ordinary tokens
	AddDelimiters    Delimiters = "add"   // to the tokenizer, as tokens
	PlainDelimiters  Delimiters = "plain" // they stay ordinary text
)

// AddedToken is a token that was added to a tokenizer.
type AddedToken struct {
	ID      int    `json:"id"`
	Content string `json:"content"`
}

var delimiterPattern = regexp.MustCompile(`<\|[A-Za-z0-9_.-]+\|>`)

// plainTemplates lists the built-in templates whose models treat the delimiters as ordinary text.
var plainTemplates = []string{"tulu"}

// withDelimiters returns tok, with missing delimiters added if requested, and the added tokens.
func (t *Template) withDelimiters(
	tok tokenizer.Tokenizer, delimiters Delimiters,
) (tokenizer.Tokenizer, []AddedToken, error) {
	hub, ok := tok.(*tokenizer.HuggingFace)
	if !ok && delimiters == AddDelimiters {
		return nil, nil, fmt.Errorf("tokens cannot be added to the tokenizer %s: "+
			"it has no tokenizer.json", tok.Info().Name)
	}
	plain := t.ofItsModel || slices.Contains(plainTemplates, t.Name)
	if !ok || delimiters == PlainDelimiters || delimiters == RefuseDelimiters && plain {
		return tok, nil, nil
	}
	var missing []string // delimiters that are not single tokens
	for _, delimiter := range delimiterPattern.FindAllString(t.Source, -1) {
		ids, err := hub.Encode(delimiter)
		if err != nil {
			return nil, nil, err
		}
		if len(ids) != 1 && !slices.Contains(missing, delimiter) {
			missing = append(missing, delimiter)
		}
	}
	if len(missing) == 0 {
		return tok, nil, nil
	}
	if delimiters == RefuseDelimiters {
		return nil, nil, fmt.Errorf("template %s writes %s, which the tokenizer %s splits into "+
			"ordinary tokens: --add-tokens adds them as tokens, "+
			"--plain-marks trains on them as ordinary text, "+
			"and the delimiters of other templates (%s) may be tokens",
			t.Name, strings.Join(missing, " and "), tok.Info().Name, strings.Join(BuiltIn(), ", "))
	}
	more, err := hub.WithTokens(missing)
	if err != nil {
		return nil, nil, err
	}
	var added []AddedToken
	for _, delimiter := range missing {
		ids, err := more.Encode(delimiter)
		if err == nil && len(ids) != 1 {
			err = fmt.Errorf("tokenizer %s: %s cannot be added, "+
				"because it begins with another token", tok.Info().Name, delimiter)
		}
		if err != nil {
			return nil, nil, err
		}
		added = append(added, AddedToken{int(ids[0]), delimiter})
	}
	return more, added, nil
}
