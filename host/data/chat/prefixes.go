package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// prefixes finds the assistant's turns in a conversation by rendering its prefixes: before each
// turn, with and without the generation prompt, and up to its end. The time is quadratic in the
// length of the conversation, and is bounded.
type prefixes struct {
	e     *Encoder
	ctx   context.Context
	c     Conversation
	whole string
	left  int // remaining work

	// stays maps a text that the template prints after a message to whether it remains when the
	// conversation continues.
	stays  map[string]bool
	sample Conversation // the conversation with other answers; nil: not needed yet
}

// maxWork bounds the work for one conversation, in template steps, encoded bytes, and hundreds of
// rendered bytes: about half a minute.
const maxWork = 200_000_000

type rendered struct {
	text string
	last *jinja.Span // the output of a loop for the last message; nil if unknown
}

func (p *prefixes) render(c Conversation, prompt bool) (rendered, error) {
	r, printed, err := p.e.template.render(p.ctx, c, prompt)
	if err != nil {
		return rendered{}, asDropped(err)
	}
	return rendered{r.Text, printed[len(c)-1]}, p.spend(r.Steps + len(r.Text)/100)
}

func (p *prefixes) spend(work int) error {
	if p.left -= work; p.left < 0 {
		return rowError(fmt.Sprintf("the conversation has %d messages, too many to render it for "+
			"each turn: divide it, or mark the assistant's text in the template ({%% generation %%})",
			len(p.c)))
	}
	return p.ctx.Err()
}

// turn is an assistant turn in the text rendered for the conversation up to this turn.
type turn struct {
	message int
	rendered
	learned jinja.Span // the part that counts in the loss
}

// turn finds an assistant turn. The turn begins after its generation prompt, if the template has
// one and the text begins with it. Otherwise it begins where the text first differs from the text
// rendered with another answer: the text before is the header of the turn or a default system
// prompt.
func (p *prefixes) turn(i int) (t turn, err error) {
	t = turn{message: i}
	var with, without rendered // rendered with and without the generation prompt
	if i > 0 {
		if with, err = p.render(p.c[:i], true); err == nil {
			without, err = p.render(p.c[:i], false)
		}
	}
	if err == nil {
		t.rendered, err = p.render(p.c[:i+1], false)
	}
	if err != nil {
		return t, err
	}
	before, prompted := 0, false
	if strings.HasPrefix(t.text, with.text) {
		before, prompted = len(with.text), !strings.HasPrefix(without.text, with.text)
	}
	if t.last == nil {
		switch {
		case prompted:
			t.learned = jinja.Span{Start: before, End: len(t.text)}
		case strings.TrimSpace(p.c[i].Content) != "":
			err = &Dropped{NotFound}
		}
		return t, err
	}
	t.learned.Start = before
	if !prompted || before <= t.last.Start || before > t.last.End {
		answer, err := p.answer(t)
		if err != nil {
			return t, err
		}
		// White space printed for the message is the beginning of the model's answer, as in Llama
		// 2's format.
		if i == 0 || before < t.last.Start || before > answer.Start ||
			strings.TrimSpace(t.text[before:answer.Start]) != "" {
			t.learned.Start = answer.Start
		}
	}
	t.learned.End, err = p.end(t)
	return t, err
}

// answer finds the part of the template's output for a turn that depends on the answer.
func (p *prefixes) answer(t turn) (jinja.Span, error) {
	if p.sample == nil { // replace the answers by a character that occurs nowhere
		all := p.whole
		for _, m := range p.c {
			all += m.Content
		}
		letter := 'A'
		for letter < '\x7f' && strings.ContainsRune(all, letter) {
			letter++
		}
		p.sample = slices.Clone(p.c)
		for i, m := range p.sample {
			if m.Role == Assistant {
				p.sample[i] = NewMessage(Assistant, string(letter))
			}
		}
	}
	other, err := p.render(p.sample[:t.message+1], false)
	if refused(err) || err == nil && other.last == nil {
		err = &Dropped{NotFound}
	}
	if err != nil {
		return jinja.Span{}, err
	}
	a := t.text[t.last.Start:t.last.End]
	b := other.text[other.last.Start:other.last.End]
	begin := commonPrefix(a, b)
	end := len(a) - min(commonSuffix(a, b), len(a)-begin)
	return jinja.Span{Start: t.last.Start + begin, End: t.last.Start + end}, nil
}

// end returns the end of the turn in its text. Text after the template's output for the message
// belongs to the turn if it is a stop token, or if it remains when the conversation continues, such
// as a delimiter that is printed before the next turn.
func (p *prefixes) end(t turn) (int, error) {
	rest := t.text[t.last.End:]
	if rest == "" {
		return t.last.End, nil
	}
	trimmed := strings.TrimLeftFunc(rest, unicode.IsSpace)
	for _, stop := range p.e.stops {
		if strings.HasPrefix(trimmed, stop) {
			return t.last.End + len(rest) - len(trimmed) + len(stop), nil
		}
	}
	stays, known := p.stays[rest]
	if !known {
		// The text must remain before a user turn, and before another assistant turn if the
		// template allows one.
		stays = true
		for _, role := range []string{User, Assistant} {
			longer, err := p.render(append(slices.Clip(p.c[:t.message+1]), NewMessage(role, "A")), false)
			switch {
			case refused(err) && role == Assistant:
			case err != nil && !refused(err):
				return 0, err
			case err != nil || !strings.HasPrefix(longer.text, t.text):
				stays = false
			}
			if !stays {
				break
			}
		}
		p.stays[rest] = stays
	}
	if stays {
		return len(t.text), nil
	}
	return t.last.End, nil
}

// refused reports whether err means that a template rejected messages that [prefixes] made up.
func refused(err error) bool {
	_, dropped := errors.AsType[*Dropped](err)
	e, ok := errors.AsType[*jinja.Error](err)
	return dropped || ok && e.Cause == nil
}

// texts returns the texts in which the turns count in the loss: the whole conversation for turns
// that are rendered the same in it as at the end of a prefix, and the prefix for each other turn. A
// text that begins with the previous one replaces it. printed[i] is the template's output for
// message i in the whole text, or nil if unknown.
func (p *prefixes) texts(turns []int, printed []*jinja.Span) (list []learnedText, err error) {
	whole := learnedText{text: p.whole}
	var last turn // the last of list
	for _, i := range turns {
		t, err := p.turn(i)
		if err != nil {
			return nil, err
		}
		if t.learned.Start >= t.learned.End {
			continue
		}
		// A turn is rendered the same in the whole text if both texts agree at least up to the end
		// of its answer.
		shared := commonPrefix(t.text, p.whole)
		end, same := t.learned.End, shared == len(t.text)
		if !same && t.last != nil && printed[i] != nil {
			end, same = min(shared, t.last.End, printed[i].End), true
			if shared < t.last.End {
				answer, err := p.answer(t)
				if err != nil {
					return nil, err
				}
				same = shared >= answer.End
			}
		}
		if same {
			whole.spans = append(whole.spans, jinja.Span{Start: t.learned.Start, End: end})
			continue
		}
		own := learnedText{t.text, []jinja.Span{t.learned}}
		if err := p.spend(len(own.text)); err != nil {
			return nil, err
		}
		if n := len(list); n > 0 && commonPrefix(last.text, t.text) >= last.learned.End {
			own.spans = append(list[n-1].spans, t.learned)
			list = list[:n-1]
		}
		list, last = append(list, own), t
	}
	if len(whole.spans) > 0 || len(list) == 0 {
		list = append(list, whole)
	}
	return list, nil
}
