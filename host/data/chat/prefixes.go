package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// prefixes gives the texts of the beginnings of a conversation that end before a turn, with the prompt for it, and behind
// it. Most templates give all of them in one pass. Others are rendered once for each, which takes a time that is quadratic
// in the length of the conversation, and is bounded.
type prefixes struct {
	e   *Encoder
	ctx context.Context
	c   Conversation

	common  string // what the endings of one pass have before them
	shared  int    // how much of it the whole begins with; -1: not known yet
	endings []jinja.Ending
	err     error // of the prefix behind those; [jinja.ErrDepends]: it is rendered for itself
	next    int   // in endings
	left    int   // work that may still be done
}

// maxWork bounds the work for one conversation, in steps of the template and bytes that are encoded: around half a minute.
const maxWork = 200_000_000

// prefixes prepares those around turns.
func (e *Encoder) prefixes(ctx context.Context, c Conversation, turns []int) *prefixes {
	var list []jinja.Prefix
	for _, i := range turns {
		if i > 0 {
			list = append(list, jinja.Prefix{Elements: i, Flag: true})
		}
		list = append(list, jinja.Prefix{Elements: i + 1})
	}
	p := &prefixes{e: e, ctx: ctx, c: c, shared: -1, left: maxWork}
	t := e.template
	texts, err := t.program.RenderPrefixes(t.variables(c, false), messagesVariable, promptVariable, list, t.now(), jinja.Limits{Context: ctx, Work: maxWork})
	p.common, p.endings, p.err = texts.Common, texts.Endings, err
	return p
}

// turn returns how the texts end before message i and up to its end. It is called for the turns in their order. A
// conversation that begins with the assistant has no text before it.
func (p *prefixes) turn(i int) (head, through jinja.Ending, err error) {
	if i > 0 {
		if head, err = p.text(i, true); err != nil {
			return head, through, err
		}
	}
	through, err = p.text(i+1, false)
	return head, through, err
}

// text is the next one.
func (p *prefixes) text(messages int, prompt bool) (jinja.Ending, error) {
	at := p.next
	p.next++
	switch {
	case at < len(p.endings):
		return p.endings[at], nil
	case errors.Is(p.err, jinja.ErrWork):
		return jinja.Ending{}, &longError{len(p.c)}
	case !errors.Is(p.err, jinja.ErrDepends):
		return jinja.Ending{}, p.err
	}
	r, err := p.e.template.render(p.c[:messages], prompt, jinja.Limits{Context: p.ctx})
	if err == nil {
		err = p.spend(r.Steps)
	}
	return jinja.Ending{Rest: r.Text}, err
}

// spend counts work.
func (p *prefixes) spend(work int) error {
	if p.left -= work; p.left < 0 {
		return &longError{len(p.c)}
	}
	return p.ctx.Err()
}

// endIn is where a text ends in the whole, and whether the whole begins with it.
func (p *prefixes) endIn(whole string, text jinja.Ending) (int, bool) {
	if p.shared < 0 {
		p.shared = commonPrefix(p.common, whole)
	}
	return text.Common + len(text.Rest), text.Common <= p.shared && strings.HasPrefix(whole[text.Common:], text.Rest)
}

// tokens is the number of tokens of a text.
func (p *prefixes) tokens(text jinja.Ending) (int, error) {
	if err := p.spend(text.Common + len(text.Rest)); err != nil {
		return 0, err
	}
	ids, err := p.e.tokenizer.Encode(p.common[:text.Common] + text.Rest)
	return len(ids), err
}

// longError reports a conversation whose turns cannot be found in a bounded time.
type longError struct{ messages int }

func (e *longError) Error() string {
	return fmt.Sprintf("the conversation has %d messages, too many for this template, which has to be rendered anew for each turn: divide it, "+
		"or mark in the template what the assistant says ({%% generation %%})", e.messages)
}
