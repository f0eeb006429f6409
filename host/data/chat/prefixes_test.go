package chat

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// TestLongConversation checks that too many renderings of a conversation are an error about its
// length, and that canceling the context stops them.
func TestLongConversation(t *testing.T) {
	e := encoder(t, "{{ messages | length }}"+plain, "")
	c := Conversation{NewMessage(User, "q"), NewMessage(Assistant, "one"), NewMessage(User, "q"),
		NewMessage(Assistant, "two")}
	printed := make([]*jinja.Span, len(c))
	p := &prefixes{e: e, ctx: t.Context(), c: c, left: 50, stays: map[string]bool{}}
	_, err := p.texts(e.turns(c), printed)
	if _, ok := errors.AsType[rowError](err); !ok || !strings.Contains(err.Error(), "4 messages") {
		t.Errorf("error %v, want one about the length", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p = &prefixes{e: e, ctx: ctx, c: c, left: maxWork, stays: map[string]bool{}}
	if _, err := p.texts(e.turns(c), printed); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// TestLongMessages checks that text which is rendered again for each turn counts as work, although
// the template takes one step for a message.
func TestLongMessages(t *testing.T) {
	e := encoder(t, plain, "")
	c := Conversation{NewMessage(User, strings.Repeat("q", 100_000)), NewMessage(Assistant, "one")}
	whole, err := e.template.Render(c, false)
	if err != nil {
		t.Fatal(err)
	}
	p := &prefixes{e: e, ctx: t.Context(), c: c, whole: whole.Text, left: 1000}
	if _, err := p.texts(e.turns(c), make([]*jinja.Span, len(c))); err == nil {
		t.Error("the work for 100,000 bytes is not counted")
	}
}
