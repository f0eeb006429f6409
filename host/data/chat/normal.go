package chat

import "github.com/cage-qat/cage/host/data/chat/jinja"

func (e *Encoder) normal(text string) string {
	if t, ok := e.tokenizer.(interface{ Normal(text string) string }); ok {
		return t.Normal(text)
	}
	return text
}

// normalSpans finds spans of a text in its normal form. A letter that is composed of what stands on
// both sides of an end belongs to the span.
func (e *Encoder) normalSpans(text, normal string, spans []jinja.Span) []jinja.Span {
	if text == normal {
		return spans
	}
	list := make([]jinja.Span, len(spans))
	for i, s := range spans {
		before, behind := e.normal(text[:s.Start]), e.normal(text[s.End:])
		list[i] = jinja.Span{
			Start: commonPrefix(before, normal),
			End:   len(normal) - commonSuffix(behind, normal),
		}
	}
	return list
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
