package chat

import (
	"strings"

	"github.com/cage-qat/cage/host/data/tokenizer"
)

// Ending is what a template prints behind a turn of the assistant, which tells a program that the answer is complete: a
// special token, or else a text.
type Ending struct {
	Token int32  // [tokenizer.NoToken]: none
	Text  string // "" if there is a token, or if nothing is known
}

// Ending finds what ends a turn that follows before. It is not known of a template that prints answers in another way
// than they were given.
func (t *Template) Ending(tok tokenizer.Tokenizer, before Conversation) (Ending, error) {
	none := Ending{Token: tokenizer.NoToken}
	const question, reply = "question", "reply"
	r, err := t.Render(append(before[:len(before):len(before)], NewMessage(User, question), NewMessage(Assistant, reply)), false)
	if err != nil {
		return none, err
	}
	at := strings.LastIndex(r.Text, reply)
	if at < 0 {
		return none, nil
	}
	behind := strings.TrimSpace(r.Text[at+len(reply):])
	ids, err := tok.Encode(behind)
	if err != nil || len(ids) == 0 {
		return none, err
	}
	if tokenizer.IsSpecial(tok, ids[0]) {
		return Ending{Token: ids[0]}, nil
	}
	return Ending{tokenizer.NoToken, behind}, nil
}

// ModelEnding finds what ends a turn in the template that is among the files of a model's tokenizer, if there is one.
func ModelEnding(files map[string][]byte, tok tokenizer.Tokenizer) (Ending, error) {
	template, err := ModelTemplate(files)
	if err != nil || template == nil {
		return Ending{Token: tokenizer.NoToken}, err
	}
	return template.Ending(tok, nil)
}

// Ends are the tokens that end a text of a model, given the files of its tokenizer: the one that begins the next document,
// the one that ends a document, and the one that ends a turn.
func Ends(files map[string][]byte, tok tokenizer.Tokenizer) (list []int32) {
	end, _ := ModelEnding(files, tok) // without a template there is no end of a turn
	for _, id := range []int32{tok.Info().BOS, tok.Info().EOS, end.Token} {
		if id != tokenizer.NoToken {
			list = append(list, id)
		}
	}
	return list
}
