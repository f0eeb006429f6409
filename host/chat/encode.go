package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/host/chat/jinja"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// TrainOn says which turns of the assistant carry loss.
type TrainOn string

// The turns that can carry loss.
const (
	AllTurns TrainOn = "all_turns"
	LastTurn TrainOn = "last_turn"
)

// Special says what becomes of special tokens that somebody has written into a message.
type Special string

// With AllowSpecial they become the tokens that they name, as in transformers; with
// RefuseSpecial such a conversation is an error.
const (
	AllowSpecial  Special = "allow"
	RefuseSpecial Special = "error"
)

// Encoder makes documents of conversations. It is safe for concurrent use.
type Encoder struct {
	template  *Template
	tokenizer tokenizer.Tokenizer
	trainOn   TrainOn
	refused   []string // that messages must not contain
	pieces    sync.Map // the bytes of tokens that have occurred, by id
}

// NewEncoder returns an encoder. Zero values stand for [AllTurns] and [AllowSpecial].
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

// Document is a conversation as token ids. Loss has one element for each id: whether the
// model is to learn to write this token.
type Document struct {
	IDs  []int32
	Loss []bool
}

// A Dropped error says why a conversation gives no document.
type Dropped struct{ Reason Reason }

// Reason is why conversations are dropped.
type Reason string

// The reasons. What a template says when it refuses a conversation is one of its own.
const (
	NoLoss    Reason = "nothing that the assistant says carries loss"
	NotFound  Reason = "the turns of the assistant cannot be found in the text: the template writes them otherwise when others follow"
	refusal   Reason = "the template refuses: "
	maxReason        = 200 // bytes of a refusal that are kept
)

func (d *Dropped) Error() string { return string(d.Reason) }

// refused makes a Dropped of what a template says with raise_exception; other errors stay.
func refused(err error) error {
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

// Encode returns the document of a conversation. A conversation that has nothing to learn,
// or that the template refuses, is a [*Dropped].
func (e *Encoder) Encode(c Conversation) (*Document, error) {
	for i, m := range c {
		for _, token := range e.refused {
			if strings.Contains(m.Content, token) {
				return nil, &specialError{i, token}
			}
		}
	}
	whole, err := e.template.Render(c, false)
	if err != nil {
		return nil, refused(err)
	}
	ids, err := e.tokenizer.Encode(whole.Text)
	if err != nil {
		return nil, err
	}
	d := &Document{IDs: ids, Loss: make([]bool, len(ids))}
	if err := e.mark(d, c, whole); err != nil {
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

// mark sets the loss of a document.
func (e *Encoder) mark(d *Document, c Conversation, whole jinja.Rendering) error {
	if e.template.program.HasGeneration() {
		return e.markBytes(d, whole.Text, e.chosen(whole.Generated))
	}
	turns := e.turns(c)
	spans, err := e.spans(c, turns, whole.Text)
	if err == nil {
		return e.markBytes(d, whole.Text, spans)
	}
	if _, dropped := errors.AsType[*Dropped](err); !dropped {
		return err
	}
	return e.markCounted(d, c, turns)
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

// chosen are the spans of generation blocks that carry loss.
func (e *Encoder) chosen(spans []jinja.Span) []jinja.Span {
	if e.trainOn == LastTurn && len(spans) > 0 {
		return spans[len(spans)-1:]
	}
	return spans
}

// spans finds the turns in the text. A turn begins where the text ends that the messages
// before it give with a prompt, and ends where the text with it ends; both must be
// beginnings of the whole.
func (e *Encoder) spans(c Conversation, turns []int, whole string) ([]jinja.Span, error) {
	var list []jinja.Span
	for _, i := range turns {
		head, through, err := e.around(c, i)
		if err != nil {
			return nil, refused(err)
		}
		if len(head) > len(through) || !strings.HasPrefix(whole, head) || !strings.HasPrefix(whole, through) {
			return nil, &Dropped{NotFound}
		}
		list = append(list, jinja.Span{Start: len(head), End: len(through)})
	}
	return list, nil
}

// around returns the texts before message i, with the prompt for it, and up to its end. A
// conversation that begins with the assistant has no text before it.
func (e *Encoder) around(c Conversation, i int) (head, through string, err error) {
	if i > 0 {
		r, err := e.template.Render(c[:i], true)
		if err != nil {
			return "", "", err
		}
		head = r.Text
	}
	r, err := e.template.Render(c[:i+1], false)
	return head, r.Text, err
}

// markBytes sets the loss of all tokens that share a byte with a span.
func (e *Encoder) markBytes(d *Document, text string, spans []jinja.Span) error {
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
func (e *Encoder) markCounted(d *Document, c Conversation, turns []int) error {
	for _, i := range turns {
		head, through, err := e.around(c, i)
		if err != nil {
			return refused(err)
		}
		from, err := e.tokenizer.Encode(head)
		if err != nil {
			return err
		}
		to, err := e.tokenizer.Encode(through)
		if err != nil {
			return err
		}
		if len(from) > len(to) || len(to) > len(d.IDs) {
			return &Dropped{NotFound}
		}
		said, err := e.tokenizer.Decode(d.IDs[len(from):len(to)])
		if err != nil {
			return err
		}
		if !strings.HasPrefix(strings.TrimSpace(said), strings.TrimSpace(c[i].Content)) {
			return &Dropped{NotFound}
		}
		for at := len(from); at < len(to); at++ {
			d.Loss[at] = true
		}
	}
	return nil
}
