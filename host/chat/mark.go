package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/chat/jinja"
)

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

// normal is the text as the tokenizer normalizes it, which its tokens give back.
func (e *Encoder) normal(text string) string {
	if t, ok := e.tokenizer.(interface{ Normal(text string) string }); ok {
		return t.Normal(text)
	}
	return text
}

// normalSpans finds spans of a text in its normal form. A letter that is composed of what stands on both sides of an end
// belongs to the span.
func (e *Encoder) normalSpans(text, normal string, spans []jinja.Span) []jinja.Span {
	if text == normal {
		return spans
	}
	list := make([]jinja.Span, len(spans))
	for i, s := range spans {
		before, behind := e.normal(text[:s.Start]), e.normal(text[s.End:])
		start, end := 0, len(normal)
		for start < len(before) && start < len(normal) && before[start] == normal[start] {
			start++
		}
		for back := len(behind) - 1; back >= 0 && end > start && behind[back] == normal[end-1]; back-- {
			end--
		}
		list[i] = jinja.Span{Start: start, End: end}
	}
	return list
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
		if !strings.HasPrefix(strings.TrimSpace(said), strings.TrimSpace(e.normal(c[i].Content))) {
			return &Dropped{NotFound}
		}
		for at := len(from); at < len(to); at++ {
			d.Loss[at] = true
		}
	}
	return nil
}
