package chat

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

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
	cuts := e.cuts(text, normal, spans)
	list := make([]jinja.Span, len(spans))
	for i, s := range spans {
		from, _ := enclosingCuts(cuts, s.Start)
		_, to := enclosingCuts(cuts, s.End)
		before, behind := e.normal(text[from.text:s.Start]), e.normal(text[s.End:to.text])
		list[i] = jinja.Span{
			Start: from.normal + commonPrefix(before, normal[from.normal:]),
			End:   to.normal - commonSuffix(behind, normal[:to.normal]),
		}
	}
	return list
}

// commonPrefix is the number of bytes with which two texts begin alike.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// commonSuffix is the number of bytes with which two texts end alike.
func commonSuffix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// cut is a place where a text and its normal form can both be cut: the normal form of each part is the part of the normal
// form.
type cut struct{ text, normal int }

// cuts are those next to the ends of spans, the beginning and the end of the text, in order. Without them each end of a
// span would take the normal form of all of the text.
func (e *Encoder) cuts(text, normal string, spans []jinja.Span) []cut {
	places := []int{0, len(text)}
	for _, s := range spans {
		for _, end := range []int{s.Start, s.End} {
			places = append(places, boundary(text, end, -1), boundary(text, end, +1))
		}
	}
	slices.Sort(places)
	places = slices.Compact(places)
	list := make([]cut, len(places))
	for i := 1; i < len(places); i++ {
		part := e.normal(text[places[i-1]:places[i]])
		if !strings.HasPrefix(normal[list[i-1].normal:], part) { // a cut through a token of the tokenizer, perhaps
			return []cut{{}, {len(text), len(normal)}}
		}
		list[i] = cut{places[i], list[i-1].normal + len(part)}
	}
	if list[len(list)-1].normal != len(normal) {
		return []cut{{}, {len(text), len(normal)}}
	}
	return list
}

// boundary is the place nearest to another, in a direction, before a character that is not composed with those before it.
func boundary(text string, at, direction int) int {
	for at > 0 && at < len(text) && !norm.NFKC.PropertiesString(text[at:]).BoundaryBefore() {
		if direction < 0 {
			_, size := utf8.DecodeLastRuneInString(text[:at])
			at -= size
		} else {
			_, size := utf8.DecodeRuneInString(text[at:])
			at += size
		}
	}
	return at
}

// enclosingCuts returns the last cut before a place in the text and the first behind it; both are the cut that is there.
func enclosingCuts(cuts []cut, place int) (before, behind cut) {
	i, found := slices.BinarySearchFunc(cuts, place, func(c cut, place int) int { return c.text - place })
	if found {
		return cuts[i], cuts[i]
	}
	return cuts[i-1], cuts[i]
}
