package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// markLoss sets the loss of a document.
func (e *Encoder) markLoss(ctx context.Context, d *Document, c Conversation, whole jinja.Rendering) error {
	if e.template.program.HasGeneration() {
		return e.markBytes(d, whole.Text, e.learnedSpans(whole.Generated))
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

// learnedSpans are the spans of generation blocks that carry loss.
func (e *Encoder) learnedSpans(spans []jinja.Span) []jinja.Span {
	if e.trainOn == LastTurn && len(spans) > 0 {
		return spans[len(spans)-1:]
	}
	return spans
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
