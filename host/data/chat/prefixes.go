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

// prefixes gives the texts of the beginnings of a conversation: before a turn of the assistant,
// with and without the prompt for it, and up to its end. Most templates give all of them in one
// pass. Others are rendered once for each, which takes a time that is quadratic in the length of
// the conversation, and is bounded.
type prefixes struct {
	e   *Encoder
	ctx context.Context
	c   Conversation

	wanted  []jinja.Prefix
	common  string // what the endings of one pass have before them
	endings []jinja.Ending
	err     error // of the prefix behind those; [jinja.ErrDepends]: it is rendered by itself
	next    int   // in wanted
	left    int   // work that may still be done

	stays  map[string]bool // results of goesOn, by what is behind the template's part for a message
	whole  jinja.Ending    // the text of the conversation
	sample *prefixes       // of the conversation with other answers; nil: not needed yet
}

// maxWork bounds the work for one conversation, in steps of the template and bytes that are
// encoded: around half a minute.
const maxWork = 200_000_000

// prefixes prepares those around turns. whole is the text of the conversation.
func (e *Encoder) prefixes(
	ctx context.Context, c Conversation, turns []int, whole string,
) *prefixes {
	p := &prefixes{e: e, ctx: ctx, c: c, left: maxWork, stays: map[string]bool{}}
	for _, i := range turns {
		if i > 0 {
			p.wanted = append(p.wanted,
				jinja.Prefix{Elements: i, Flag: true}, jinja.Prefix{Elements: i})
		}
		p.wanted = append(p.wanted, jinja.Prefix{Elements: i + 1})
	}
	p.render()
	shared := commonPrefix(p.common, whole)
	p.whole = jinja.Ending{Common: shared, Rest: whole[shared:]}
	return p
}

// render renders what one pass gives.
func (p *prefixes) render() {
	t := p.e.template
	texts, err := t.program.RenderPrefixes(t.variables(p.c, false), messagesVariable, promptVariable,
		p.wanted, t.now(), jinja.Limits{Context: p.ctx, Work: maxWork})
	p.common, p.endings, p.err = texts.Common, texts.Endings, err
}

// text is that of the first messages, which is wanted. Texts are asked for in their order.
func (p *prefixes) text(messages int, prompt bool) (jinja.Ending, error) {
	for p.wanted[p.next] != (jinja.Prefix{Elements: messages, Flag: prompt}) {
		p.next++
	}
	switch {
	case p.next < len(p.endings):
		return p.endings[p.next], nil
	case errors.Is(p.err, jinja.ErrWork):
		return jinja.Ending{}, &longError{len(p.c)}
	case !errors.Is(p.err, jinja.ErrDepends):
		return jinja.Ending{}, asDropped(p.err)
	}
	return p.alone(p.c[:messages], prompt)
}

// alone renders a conversation by itself.
func (p *prefixes) alone(c Conversation, prompt bool) (jinja.Ending, error) {
	t := p.e.template
	variables := t.variables(c, prompt)
	r, err := t.program.Render(variables, t.now(), jinja.Limits{Context: p.ctx})
	if err != nil {
		return jinja.Ending{}, asDropped(err)
	}
	end := jinja.Ending{Rest: r.Text}
	list := variables[messagesVariable].(jinja.List)
	end.Last, end.HasLast = r.Printed[list[len(list)-1].(*jinja.Dict)]
	return end, p.spend(r.Steps)
}

// spend counts work.
func (p *prefixes) spend(work int) error {
	if p.left -= work; p.left < 0 {
		return &longError{len(p.c)}
	}
	return p.ctx.Err()
}

// alike is the number of bytes with which two texts begin alike.
func (p *prefixes) alike(a, b jinja.Ending) int {
	if a.Common > b.Common {
		a, b = b, a
	}
	n := commonPrefix(a.Rest, p.common[a.Common:b.Common])
	if a.Common+n < b.Common {
		return a.Common + n
	}
	return b.Common + commonPrefix(a.Rest[n:], b.Rest)
}

// begins reports whether a text begins with another.
func (p *prefixes) begins(text, with jinja.Ending) bool { return p.alike(text, with) == with.Len() }

// turn is a turn of the assistant, in the text of the messages up to it.
type turn struct {
	message int
	text    jinja.Ending
	learned jinja.Span
	// printed ends what the template prints for the message itself; -1 if that is not known.
	printed int
}

// turn finds a turn. It begins where the prompt for it ends, if the template has one and the text
// begins with it. Otherwise it begins where the text differs from that of another answer: what is
// before that is no answer, but the header of the turn or a default system prompt.
func (p *prefixes) turn(i int) (t turn, err error) {
	t = turn{message: i, printed: -1}
	var with, without jinja.Ending // the prompt for the turn
	if i > 0 {
		if with, err = p.text(i, true); err == nil {
			without, err = p.text(i, false)
		}
	}
	if err == nil {
		t.text, err = p.text(i+1, false)
	}
	if err != nil {
		return t, err
	}
	before, prompted := 0, false
	if p.begins(t.text, with) {
		before, prompted = with.Len(), !p.begins(without, with)
	}
	if !t.text.HasLast {
		switch {
		case prompted:
			t.learned = jinja.Span{Start: before, End: t.text.Len()}
		case strings.TrimSpace(p.c[i].Content) != "":
			err = &Dropped{NotFound}
		}
		return t, err
	}
	from := t.text.Common + t.text.Last.Start
	t.printed = t.text.Common + t.text.Last.End
	t.learned.Start = before
	if !prompted || before <= from || before > t.printed {
		answer, err := p.answer(t)
		if err != nil {
			return t, err
		}
		// White space between the two is what the model has to write first, as in Llama 2's format.
		if i == 0 || before < t.text.Common || before > answer.Start ||
			strings.TrimSpace(t.text.Rest[before-t.text.Common:answer.Start-t.text.Common]) != "" {
			t.learned.Start = answer.Start
		}
	}
	t.learned.End, err = p.end(t)
	return t, err
}

// answer finds what depends on the answer in what the template prints for a turn.
func (p *prefixes) answer(t turn) (jinja.Span, error) {
	if p.sample == nil {
		p.sample = p.withOtherAnswers()
	}
	other, err := p.sample.text(t.message+1, false)
	if refused(err) || err == nil && !other.HasLast {
		err = &Dropped{NotFound}
	}
	if err != nil {
		return jinja.Span{}, err
	}
	a := t.text.Rest[t.text.Last.Start:t.text.Last.End]
	b := other.Rest[other.Last.Start:other.Last.End]
	begin := commonPrefix(a, b)
	end := len(a) - min(commonSuffix(a, b), len(a)-begin)
	from := t.text.Common + t.text.Last.Start
	return jinja.Span{Start: from + begin, End: from + end}, nil
}

// withOtherAnswers is the conversation in which the assistant says nothing but a character that
// occurs nowhere in it.
func (p *prefixes) withOtherAnswers() *prefixes {
	s := &prefixes{e: p.e, ctx: p.ctx, c: slices.Clone(p.c), left: p.left}
	said := []string{p.common, p.whole.Rest}
	for _, m := range p.c {
		said = append(said, m.Content)
	}
	letter := 'A'
	for all := strings.Join(said, ""); letter < '~' && strings.ContainsRune(all, letter); {
		letter++
	}
	for i, m := range s.c {
		if m.Role == Assistant {
			s.c[i] = NewMessage(Assistant, string(letter))
			s.wanted = append(s.wanted, jinja.Prefix{Elements: i + 1})
		}
	}
	s.render()
	return s
}

// end is where the turn ends in its text. What is behind the template's part for the message
// belongs to it if it is a token that ends texts, or if it is there too when the conversation goes
// on, such as a mark that is printed before the next turn.
func (p *prefixes) end(t turn) (int, error) {
	rest := t.text.Rest[t.text.Last.End:]
	if rest == "" {
		return t.printed, nil
	}
	trimmed := strings.TrimLeftFunc(rest, unicode.IsSpace)
	for _, stop := range p.e.stops {
		if strings.HasPrefix(trimmed, stop) {
			return t.printed + len(rest) - len(trimmed) + len(stop), nil
		}
	}
	stays, known := p.stays[rest]
	if !known {
		var err error
		if stays, err = p.goesOn(t); err != nil {
			return 0, err
		}
		p.stays[rest] = stays
	}
	if stays {
		return t.text.Len(), nil
	}
	return t.printed, nil
}

// goesOn reports whether the text of a turn stays as it is when the user goes on, and the
// assistant, if the template takes another turn of it.
func (p *prefixes) goesOn(t turn) (bool, error) {
	for _, role := range []string{User, Assistant} {
		longer, err := p.alone(append(slices.Clip(p.c[:t.message+1]), NewMessage(role, "A")), false)
		switch {
		case refused(err) && role == Assistant:
		case err != nil && !refused(err):
			return false, err
		case err != nil || !p.begins(longer, t.text):
			return false, nil
		}
	}
	return true, nil
}

// refused reports whether a template does not take messages that are not in the data.
func refused(err error) bool {
	_, dropped := errors.AsType[*Dropped](err)
	e, ok := errors.AsType[*jinja.Error](err)
	return dropped || ok && e.Cause == nil
}

// within finds where a turn ends in the text of the whole conversation, and reports whether it is
// there as it is in its own text: with all that was before it, up to the end of the answer at
// least. printed ends what the template prints for the message in the whole; -1 if that is not
// known.
func (p *prefixes) within(t turn, printed int) (end int, ok bool, err error) {
	alike := p.alike(t.text, p.whole)
	switch {
	case alike == t.text.Len():
		return t.learned.End, true, nil
	case t.printed < 0 || printed < 0:
		return 0, false, nil
	case alike < t.printed:
		answer, err := p.answer(t)
		if err != nil || alike < answer.End {
			return 0, false, err
		}
	}
	return min(alike, t.printed, printed), true, nil
}

// texts are those in which the turns are learned: the whole has those that are in it as they are in
// their own texts, and each of the others is learned in its own. One of those that begins with the
// one before it takes its place.
func (p *prefixes) texts(turns, printed []int) (list []learnedText, err error) {
	whole := learnedText{text: p.common[:p.whole.Common] + p.whole.Rest}
	var last turn // of list
	for _, i := range turns {
		t, err := p.turn(i)
		if err != nil {
			return nil, err
		}
		if t.learned.Start >= t.learned.End {
			continue
		}
		end, ok, err := p.within(t, printed[i])
		if err != nil {
			return nil, err
		}
		if ok {
			whole.spans = append(whole.spans, jinja.Span{Start: t.learned.Start, End: end})
			continue
		}
		own := learnedText{p.common[:t.text.Common] + t.text.Rest, []jinja.Span{t.learned}}
		if err := p.spend(len(own.text)); err != nil {
			return nil, err
		}
		if n := len(list); n > 0 && p.alike(last.text, t.text) >= last.learned.End {
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

// longError reports a conversation whose turns cannot be found in a bounded time.
type longError struct{ messages int }

func (e *longError) Error() string {
	return fmt.Sprintf("the conversation has %d messages, too many for this template, which has to be rendered anew for each turn: divide it, "+
		"or mark in the template what the assistant says ({%% generation %%})", e.messages)
}
