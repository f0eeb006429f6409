package chat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/host/data/tokenizer"
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
		tmpl := openTemplate(t, name, "testdata", true)
		templates["built-in "+name] = tmpl
	}
	c := Conversation{NewMessage(System, "Be brief.")}
	for i := range 4 {
		c = append(c, NewMessage(User, fmt.Sprintf(" %d? ", i)), NewMessage(Assistant, fmt.Sprintf(" %d.\n", i)))
	}
	for name, tmpl := range templates {
		e := encoderOf(t, tmpl, goldenTokenizer(t), "", "")
		for first := range 2 {
			c := c[first:]
			turns := e.turns(c)
			p := e.prefixes(t.Context(), c, turns, "")
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
			for _, wanted := range p.wanted {
				end, err := p.text(wanted.Elements, wanted.Flag)
				if err != nil {
					t.Fatal(err)
				}
				want, err := tmpl.Render(c[:wanted.Elements], wanted.Flag)
				if got := p.common[:end.Common] + end.Rest; err != nil || got != want.Text {
					t.Errorf("%s, %d messages, prompt %v: %q, want %q, %v", name, wanted.Elements, wanted.Flag, got, want.Text, err)
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
	printed := []int{-1, -1, -1, -1}
	p := e.prefixes(t.Context(), c, e.turns(c), "")
	p.left = 50
	_, err := p.texts(e.turns(c), printed)
	if long, ok := errors.AsType[*longError](err); !ok || long.messages != 4 {
		t.Errorf("error %v, want one about the length", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p = e.prefixes(ctx, c, e.turns(c), "")
	if _, err := p.texts(e.turns(c), printed); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// formed is a tokenizer of bytes that brings text into a normal form, and counts the bytes that it was asked about.
type formed struct {
	tokenizer.Bytes
	form  norm.Form
	asked *int
}

func (f formed) Normal(text string) string {
	*f.asked += len(text)
	return f.form.String(text)
}

// TestNormalSpans: spans are where they are found without cuts, by the normal forms of all that stands before and behind
// their ends, and finding them takes a time that is linear in the text.
func TestNormalSpans(t *testing.T) {
	letters := []string{"a", "e", " ", "\n", "\u0301", "\u0323", "\u1100", "\u1161", "\u11a8", "ﬁ", "é", "ガ", "ﾞ", "カ", "Å", "一", "\ufdfa"}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
		asked := 0
		e := &Encoder{tokenizer: formed{form: form, asked: &asked}}
		var text strings.Builder
		var places []int
		for range 1000 {
			text.WriteString(letters[rng.IntN(len(letters))])
			if rng.IntN(4) == 0 {
				places = append(places, text.Len())
			}
		}
		var spans []jinja.Span
		for i := 0; i+1 < len(places); i += 2 {
			spans = append(spans, jinja.Span{Start: places[i], End: places[i+1]})
		}
		normal := form.String(text.String())
		got := e.normalSpans(text.String(), normal, spans)
		if asked > 10*text.Len() {
			t.Errorf("form %d: %d bytes are brought into it for a text of %d", form, asked, text.Len())
		}
		for i, s := range spans {
			before, behind := form.String(text.String()[:s.Start]), form.String(text.String()[s.End:])
			want := jinja.Span{Start: commonPrefix(before, normal), End: len(normal) - commonSuffix(behind, normal)}
			if got[i] != want {
				t.Errorf("form %d: the span %v of the text is %v, want %v", form, s, got[i], want)
			}
		}
	}
}

// ending is a tokenizer whose Normal depends on how the text goes on, so that no part of a text has the normal form of a part.
type ending struct{ tokenizer.Bytes }

func (ending) Normal(text string) string {
	if strings.HasSuffix(text, "!") {
		return strings.ReplaceAll(text, "a", "b")
	}
	return text
}

// TestNoCuts: where the normal forms of parts are not the parts of the normal form, there are no cuts.
func TestNoCuts(t *testing.T) {
	e := &Encoder{tokenizer: ending{}}
	text := "aa aa!"
	if got, want := e.cuts(text, e.normal(text), []jinja.Span{{Start: 2, End: 4}}), []cut{{0, 0}, {6, 6}}; !slices.Equal(got, want) {
		t.Errorf("cuts %v, want %v", got, want)
	}
}
