// Package chat converts conversations to documents for fine-tuning: token ids with a loss mask.
//
// A [Conversation] is parsed from a JSON row ([ParseRow]), rendered as text by a [Template],
// tokenized, and masked: only the assistant's parts count in the loss ([Encoder]). [Prepare] does
// this for whole datasets and stores the documents in the files of package dataset. The language of
// templates is implemented in package jinja.
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
	"github.com/cage-qat/cage/internal/safetext"
)

// TrainOn selects the assistant's turns whose tokens count in the training loss.
type TrainOn string

// Possible values of TrainOn.
const (
	AllTurns TrainOn = "all_turns"
	LastTurn TrainOn = "last_turn"
)

// Encoder converts conversations to documents. It is safe for concurrent use.
type Encoder struct {
	template  *Template
	tokenizer tokenizer.Tokenizer
	trainOn   TrainOn
	stops     []string // stop tokens
	pieces    sync.Map // the bytes of tokens seen so far, by id
}

// NewEncoder returns an encoder. An empty trainOn means [AllTurns]. The text of a special token
// within a message is encoded as that token, as in transformers.
func NewEncoder(t *Template, tok tokenizer.Tokenizer, trainOn TrainOn) (*Encoder, error) {
	e := &Encoder{template: t, tokenizer: tok, trainOn: trainOn}
	if trainOn != "" && trainOn != AllTurns && trainOn != LastTurn {
		return nil, fmt.Errorf("train on %q: want %s or %s", trainOn, AllTurns, LastTurn)
	}
	e.stops = []string{t.Tokens.EOS}
	if id := tok.Info().EOS; id != tokenizer.NoToken {
		stop, err := e.piece(id)
		if err != nil {
			return nil, err
		}
		e.stops = append(e.stops, stop)
	}
	e.stops = slices.DeleteFunc(e.stops, func(stop string) bool { return stop == "" })
	return e, nil
}

// piece returns the bytes of a token, or "" if the tokenizer does not have the id.
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

// Document is a conversation as token ids. Loss is the loss mask, with one element for each id.
type Document struct {
	IDs  []int32
	Loss []bool
}

// A Dropped error reports that a conversation yields no document.
type Dropped struct{ Reason Reason }

// Reason explains why a conversation was dropped.
type Reason string

// Reasons. If a template rejects a conversation, its message follows [refusal].
const (
	NoLoss   Reason = "nothing that the assistant says carries loss"
	NotFound Reason = "the template does not show which part of the text the assistant says: " +
		"mark it in the template ({% generation %} … {% endgeneration %}), or use another --template"
	refusal   Reason = "the template refuses: "
	maxReason        = 200 // maximal bytes of a template's text
	maxQuote         = 20  // and of a row's text
)

func (d *Dropped) Error() string { return string(d.Reason) }

// A rowError reports a fault of a row, rather than of the template or the tokenizer.
type rowError string

func (e rowError) Error() string { return string(e) }

// asDropped converts an error that a template raised with raise_exception to a [Dropped]. It
// returns other errors unchanged.
func asDropped(err error) error {
	e, ok := errors.AsType[*jinja.Error](err)
	if !ok || !e.Raised {
		return err
	}
	return &Dropped{refusal + Reason(safetext.Clip(e.Problem, maxReason))}
}

// Encode converts a conversation to documents. There is one, unless the template renders an
// assistant turn, or the text before it, differently when more messages follow. Such turns count in
// the loss only in separate documents, each of which ends after one of these turns. If no token
// counts in the loss, or the template rejects the conversation, the error is a [*Dropped].
func (e *Encoder) Encode(ctx context.Context, c Conversation) ([]*Document, error) {
	texts, err := e.texts(ctx, c)
	if err != nil {
		return nil, err
	}
	var list []*Document
	for _, text := range texts {
		d, err := e.document(text)
		if err != nil {
			return nil, err
		}
		// The first token is never predicted.
		if len(d.Loss) > 0 && slices.Contains(d.Loss[1:], true) {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return nil, &Dropped{NoLoss}
	}
	return list, nil
}

type learnedText struct {
	text  string
	spans []jinja.Span
}

func (e *Encoder) texts(ctx context.Context, c Conversation) ([]learnedText, error) {
	whole, printed, err := e.template.render(ctx, c, false)
	if err != nil {
		return nil, asDropped(err)
	}
	text := learnedText{text: whole.Text, spans: whole.Generated}
	if e.template.program.HasGeneration() {
		spans := text.spans
		if slices.ContainsFunc(c, func(m Message) bool { return m.Context }) {
			// Blocks and assistant messages must correspond one to one.
			answers := c.answers()
			if len(spans) != len(answers) {
				return nil, &Dropped{NotFound}
			}
			text.spans = nil
			for _, i := range e.turns(c) {
				text.spans = append(text.spans, spans[slices.Index(answers, i)])
			}
		} else if e.trainOn == LastTurn && len(spans) > 0 {
			text.spans = spans[len(spans)-1:]
			// A turn can have several blocks, or none.
			if turns := e.turns(c); len(turns) > 0 && printed[turns[0]] != nil {
				last := printed[turns[0]]
				text.spans = slices.DeleteFunc(slices.Clone(spans), func(s jinja.Span) bool {
					return s.Start < last.Start || s.End > last.End
				})
			}
		}
		return []learnedText{text}, nil
	}
	p := &prefixes{e: e, ctx: ctx, c: c, whole: whole.Text, left: maxWork, stays: map[string]bool{}}
	return p.texts(e.turns(c), printed)
}

func (e *Encoder) turns(c Conversation) []int {
	list := c.answers()
	if e.trainOn == LastTurn && len(list) > 0 {
		list = list[len(list)-1:]
	}
	return slices.DeleteFunc(list, func(i int) bool { return c[i].Context })
}

// document tokenizes a text. Its loss mask includes every token that shares a byte with one of the
// text's spans.
func (e *Encoder) document(rendered learnedText) (*Document, error) {
	ids, err := e.tokenizer.Encode(rendered.text)
	if err != nil {
		return nil, err
	}
	d := &Document{IDs: ids, Loss: make([]bool, len(ids))}
	text, spans := e.normalize(rendered)
	at, next := 0, 0
	changes := func(to string) error {
		from := safetext.Clip(text[at:], maxQuote)
		return rowError(fmt.Sprintf("tokenizer %s changes the text: its tokens give %q at %q, "+
			"so the assistant's tokens cannot be found; change the row, "+
			"or use a tokenizer that keeps every text", e.tokenizer.Info().Name, to, from))
	}
	for i, id := range ids {
		piece, err := e.piece(id)
		if err != nil {
			return nil, err
		}
		if piece == "" || !strings.HasPrefix(text[at:], piece) {
			return nil, changes(piece)
		}
		end := at + len(piece)
		for next < len(spans) && spans[next].End <= at {
			next++
		}
		d.Loss[i] = next < len(spans) && spans[next].Start < end && spans[next].Start < spans[next].End
		at = end
	}
	if at != len(text) {
		return nil, changes("")
	}
	return d, nil
}

// normalize returns the text to which the ids decode, in normal form C if the tokenizer applies it,
// and the loss spans in that text. A letter composed across the boundary of a span belongs to it.
func (e *Encoder) normalize(r learnedText) (string, []jinja.Span) {
	h, ok := e.tokenizer.(*tokenizer.HuggingFace)
	if !ok {
		return r.text, r.spans
	}
	normal := h.Normal(r.text)
	if normal == r.text {
		return r.text, r.spans
	}
	done, length := 0, 0 // bytes of the text, and of their normal form
	// word returns the normal forms of the word at a position and of its parts on both sides, and
	// where the word begins in the normal text. White space is never composed with what precedes it.
	word := func(at int) (start int, before, whole, after string) {
		from, to := max(strings.LastIndexAny(r.text[:at], " \n"), 0), len(r.text)
		if n := strings.IndexAny(r.text[at:], " \n"); n >= 0 {
			to = at + n
		}
		if from < done { // the spans are not in order
			done, length = 0, 0
		}
		length += len(h.Normal(r.text[done:from]))
		done = from
		return length, h.Normal(r.text[from:at]), h.Normal(r.text[from:to]), h.Normal(r.text[at:to])
	}
	list := make([]jinja.Span, len(r.spans))
	for i, s := range r.spans {
		start, before, whole, _ := word(s.Start)
		list[i].Start = start + commonPrefix(before, whole)
		start, _, whole, after := word(s.End)
		list[i].End = start + len(whole) - commonSuffix(after, whole)
	}
	return normal, list
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
