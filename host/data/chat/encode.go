// Package chat turns conversations into documents for fine-tuning: token ids, each marked
// with whether the model learns to write it.
//
// A [Conversation] is parsed from a JSON row ([ParseRow]), written as text by a
// [Template], cut into ids by a tokenizer, and marked: the parts that the assistant says
// carry loss ([Encoder]). [Prepare] does this to whole data sets and stores the documents
// in the files of package dataset. The language of templates is implemented in package jinja.
//
// Everything here is deterministic: the same rows and settings give the same bytes.
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

// markLoss sets the loss of a document.
func (e *Encoder) markLoss(ctx context.Context, d *Document, c Conversation, whole jinja.Rendering) error {
	if e.template.program.HasGeneration() {
		spans := whole.Generated
		if e.trainOn == LastTurn && len(spans) > 0 {
			spans = spans[len(spans)-1:]
		}
		return e.markBytes(d, whole.Text, spans)
	}
	turns := e.turns(c)
	p := e.prefixes(ctx, c, turns)
	spans, err := e.spans(p, turns, whole.Text)
	if err == nil {
		return e.markBytes(d, whole.Text, spans)
	}
	if _, dropped := errors.AsType[*Dropped](err); !dropped {
		return err
	}
	return e.markCounted(d, p, turns)
}

// turns are the messages that carry loss.
func (e *Encoder) turns(c Conversation) []int {
	var list []int
	for i, m := range c {
		if m.Role == Assistant {
			list = append(list, i)
		}
	}
	if e.trainOn == LastTurn && len(list) > 0 {
		list = list[len(list)-1:]
	}
	return list
}

// spans finds the turns in the text. A turn begins where the text ends that the messages
// before it give with a prompt, and ends where the text with it ends; both must be
// beginnings of the whole.
func (e *Encoder) spans(p *prefixes, turns []int, whole string) ([]jinja.Span, error) {
	var list []jinja.Span
	for _, i := range turns {
		head, through, err := p.turn(i)
		if err != nil {
			return nil, asDropped(err)
		}
		start, begins := p.endIn(whole, head)
		end, ends := p.endIn(whole, through)
		if start > end || !begins || !ends {
			return nil, &Dropped{NotFound}
		}
		list = append(list, jinja.Span{Start: start, End: end})
	}
	return list, nil
}

// markBytes sets the loss of all tokens that share a byte with a span.
func (e *Encoder) markBytes(d *Document, rendered string, spans []jinja.Span) error {
	text := e.normal(rendered)
	spans = e.normalSpans(rendered, text, spans)
	at, next := 0, 0
	for i, id := range d.IDs {
		piece, err := e.piece(id)
		if err != nil {
			return err
		}
		if piece == "" || !strings.HasPrefix(text[at:], piece) {
			return e.changesText()
		}
		end := at + len(piece)
		for next < len(spans) && spans[next].End <= at {
			next++
		}
		d.Loss[i] = next < len(spans) && spans[next].Start < end && spans[next].Start < spans[next].End
		at = end
	}
	if at != len(text) {
		return e.changesText()
	}
	return nil
}

func (e *Encoder) changesText() error {
	return fmt.Errorf("tokenizer %s changes the text that it cuts: its tokens, one after the other, do not give the text back, "+
		"so that the assistant's cannot be told from the others; byte-level tokenizers can be used", e.tokenizer.Info().Name)
}

// markCounted finds the turns by the number of tokens before and up to them, for templates
// that write a turn otherwise when others follow. The text found must begin with what the
// message says.
func (e *Encoder) markCounted(d *Document, p *prefixes, turns []int) error {
	p.next = 0
	for _, i := range turns {
		head, through, err := p.turn(i)
		if err != nil {
			return asDropped(err)
		}
		from, err := p.tokens(head)
		if err != nil {
			return err
		}
		to, err := p.tokens(through)
		if err != nil {
			return err
		}
		if from > to || to > len(d.IDs) {
			return &Dropped{NotFound}
		}
		answer, err := e.tokenizer.Decode(d.IDs[from:to])
		if err != nil {
			return err
		}
		if !strings.HasPrefix(strings.TrimSpace(answer), strings.TrimSpace(e.normal(p.c[i].Content))) {
			return &Dropped{NotFound}
		}
		for at := from; at < to; at++ {
			d.Loss[at] = true
		}
	}
	return nil
}
