package chat

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

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
