package chat

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// TestOnePass: the templates of the golden file and the built-in ones give all prefixes of a conversation in one pass, and
// they are the texts that each gives by itself. Those of "features" depend on the number of messages.
func TestOnePass(t *testing.T) {
	g := readGolden(t)
	templates := map[string]*Template{}
	for _, c := range g.Cases {
		templates[c.Template] = g.template(t, c)
	}
	for _, name := range BuiltIn() {
		tmpl, err := OpenTemplate(name, "testdata", true)
		if err != nil {
			t.Fatal(err)
		}
		templates["built-in "+name] = tmpl
	}
	c := Conversation{NewMessage(System, "Be brief.")}
	for i := range 4 {
		c = append(c, NewMessage(User, fmt.Sprintf(" %d? ", i)), NewMessage(Assistant, fmt.Sprintf(" %d.\n", i)))
	}
	for name, tmpl := range templates {
		e, err := NewEncoder(tmpl, goldenTokenizer(t), "", "")
		if err != nil {
			t.Fatal(err)
		}
		for first := range 2 {
			c := c[first:]
			turns := e.turns(c)
			p := e.prefixes(t.Context(), c, turns)
			if name == "features" || name == "generation" {
				if !errors.Is(p.err, jinja.ErrDepends) {
					t.Errorf("%s: error %v, want that it depends on the number", name, p.err)
				}
				continue
			}
			if p.err != nil {
				t.Errorf("%s: %v", name, p.err)
				continue
			}
			for _, i := range turns {
				head, through, err := p.turn(i)
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range []struct {
					messages int
					prompt   bool
					got      jinja.Ending
				}{{i, true, head}, {i + 1, false, through}} {
					want, err := tmpl.Render(c[:k.messages], k.prompt)
					if got := p.common[:k.got.Common] + k.got.Rest; k.messages > 0 && (err != nil || got != want.Text) {
						t.Errorf("%s, %d messages, prompt %v: %q, want %q, %v", name, k.messages, k.prompt, got, want.Text, err)
					}
				}
			}
		}
	}
}

// TestLongConversation: where each turn takes a rendering of its own, a conversation that takes too many is an error of its
// row, and the end of the context ends it.
func TestLongConversation(t *testing.T) {
	e := encoder(t, "{{ messages | length }}"+plain, "")
	c := Conversation{NewMessage(User, "q"), NewMessage(Assistant, "one"), NewMessage(User, "q"), NewMessage(Assistant, "two")}
	p := e.prefixes(t.Context(), c, e.turns(c))
	p.left = 50
	_, err := e.spans(p, e.turns(c), "")
	if _, dropped := errors.AsType[*Dropped](err); !dropped {
		t.Errorf("error %v, want that the first turn is not found", err)
	}
	p.next = 0
	err = e.markCounted(&Document{}, p, e.turns(c))
	if long, ok := errors.AsType[*longError](err); !ok || long.messages != 4 {
		t.Errorf("error %v, want one about the length", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p = e.prefixes(ctx, c, e.turns(c))
	if _, err := e.spans(p, e.turns(c), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
