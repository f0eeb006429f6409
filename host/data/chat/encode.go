package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// TrainOn says which turns of the assistant carry loss.
type TrainOn string

// The turns that can carry loss.
const (
	AllTurns TrainOn = "all_turns"
	LastTurn TrainOn = "last_turn"
)

// Special says what to do with special tokens that are written in a message.
type Special string

// With AllowSpecial they become the tokens that they name, as in transformers; with
// RefuseSpecial such a conversation is an error.
const (
	AllowSpecial  Special = "allow"
	RefuseSpecial Special = "error"
)

// Encoder turns conversations into documents. It is safe for concurrent use.
type Encoder struct {
	template  *Template
	tokenizer tokenizer.Tokenizer
	trainOn   TrainOn
	refused   []string // that messages must not contain
	pieces    sync.Map // the bytes of tokens that have occurred, by id
}

// NewEncoder returns an encoder. Zero values mean [AllTurns] and [AllowSpecial].
func NewEncoder(t *Template, tok tokenizer.Tokenizer, trainOn TrainOn, special Special) (*Encoder, error) {
	e := &Encoder{template: t, tokenizer: tok, trainOn: trainOn}
	switch {
	case trainOn != "" && trainOn != AllTurns && trainOn != LastTurn:
		return nil, fmt.Errorf("train on %q: want %s or %s", trainOn, AllTurns, LastTurn)
	case special != "" && special != AllowSpecial && special != RefuseSpecial:
		return nil, fmt.Errorf("special tokens in messages: %q, want %s or %s", special, AllowSpecial, RefuseSpecial)
	}
	if defined, ok := tok.(interface{ Definition() []byte }); ok && special == RefuseSpecial {
		var err error
		if e.refused, err = specialTokens(defined.Definition()); err != nil {
			return nil, fmt.Errorf("tokenizer %s: %w", tok.Info().Name, err)
		}
	}
	return e, nil
}

// piece is the bytes of a token; "" of an id that the tokenizer does not have.
func (e *Encoder) piece(id int32) (string, error) {
	if known, ok := e.pieces.Load(id); ok {
		return known.(string), nil
	}
	piece, err := e.tokenizer.Decode([]int32{id})
	if _, gap := errors.AsType[*tokenizer.RangeError](err); err != nil && !gap {
		return "", err
	}
	e.pieces.Store(id, piece)
	return piece, nil
}

// Document is a conversation as token ids. Loss has one element for each id, which says
// whether the model is to learn to write this token.
type Document struct {
	IDs  []int32
	Loss []bool
}

// A Dropped error says why a conversation yields no document.
type Dropped struct{ Reason Reason }

// Reason is a reason for dropping conversations.
type Reason string

// The reasons. In addition, the text with which a template refuses a conversation is a
// reason of its own.
const (
	NoLoss    Reason = "nothing that the assistant says carries loss"
	NotFound  Reason = "the turns of the assistant cannot be found in the text: the template writes them otherwise when others follow"
	refusal   Reason = "the template refuses: "
	maxReason        = 200 // bytes of a refusal that are kept
)

func (d *Dropped) Error() string { return string(d.Reason) }

// asDropped makes a Dropped of what a template says with raise_exception; other errors stay.
func asDropped(err error) error {
	e, ok := errors.AsType[*jinja.Error](err)
	if !ok || !e.Raised {
		return err
	}
	problem := e.Problem
	if len(problem) > maxReason {
		problem = strings.ToValidUTF8(problem[:maxReason], "") + "…"
	}
	return &Dropped{refusal + Reason(problem)}
}

// Encode returns the document of a conversation. If the conversation has nothing to learn
// from, or the template refuses it, the error is a [*Dropped].
func (e *Encoder) Encode(ctx context.Context, c Conversation) (*Document, error) {
	for i, m := range c {
		for _, token := range e.refused {
			if strings.Contains(m.Content, token) {
				return nil, &specialError{i, token}
			}
		}
	}
	whole, err := e.template.render(c, false, jinja.Limits{Context: ctx})
	if err != nil {
		return nil, asDropped(err)
	}
	ids, err := e.tokenizer.Encode(whole.Text)
	if err != nil {
		return nil, err
	}
	d := &Document{IDs: ids, Loss: make([]bool, len(ids))}
	if err := e.markLoss(ctx, d, c, whole); err != nil {
		return nil, err
	}
	// The first token is never predicted.
	if len(d.Loss) == 0 || !slices.Contains(d.Loss[1:], true) {
		return nil, &Dropped{NoLoss}
	}
	return d, nil
}

// specialError reports a special token that somebody has written into a message.
type specialError struct {
	message int
	token   string
}

func (e *specialError) Error() string {
	return fmt.Sprintf("messages[%d]: the content has the special token %s", e.message, e.token)
}
