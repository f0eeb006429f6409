package metrics

import (
	"bytes"
	"encoding/json/jsontext"
	"strconv"
)

// NumberReader reads all numbers in lines of metrics.jsonl, whatever their names, without
// allocations for a line. The zero value is ready to use.
type NumberReader struct {
	text    bytes.Buffer
	decoder *jsontext.Decoder
	names   [2][]byte // of a weight, and of a number
}

// anyJSON is what encoding/json accepts.
var anyJSON = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// Each passes every number in a line to yield, with its name; those of [Record.Weights]
// with the name of the weight, all others with an empty one. It reports whether the line
// is a JSON object; if it is not, nothing is passed. The slices are valid only during the
// call.
func (r *NumberReader) Each(line []byte, yield func(weight, name []byte, x float64)) bool {
	value := jsontext.Value(line)
	if !value.IsValid(anyJSON...) || value.Kind() != jsontext.KindBeginObject {
		return false
	}
	r.text.Reset()
	r.text.Write(line)
	if r.decoder == nil {
		r.decoder = jsontext.NewDecoder(&r.text, anyJSON...)
	} else {
		r.decoder.Reset(&r.text, anyJSON...)
	}
	r.members(1, func(name []byte) {
		if string(name) != "weights" || r.decoder.PeekKind() != jsontext.KindBeginObject {
			r.number(nil, name, yield)
			return
		}
		r.members(0, func(weight []byte) {
			if r.decoder.PeekKind() != jsontext.KindBeginObject {
				_ = r.decoder.SkipValue()
				return
			}
			r.members(1, func(name []byte) { r.number(weight, name, yield) })
		})
	})
	return true
}

// members calls each with the name of every member of the object that comes next, which
// must read the member's value. The line is known to be valid, so that nothing fails.
func (r *NumberReader) members(buffer int, each func(name []byte)) {
	_, _ = r.decoder.ReadToken()
	for r.decoder.PeekKind() == jsontext.KindString {
		quoted, _ := r.decoder.ReadValue()
		r.names[buffer], _ = jsontext.AppendUnquote(r.names[buffer][:0], quoted)
		each(r.names[buffer])
	}
	_, _ = r.decoder.ReadToken()
}

func (r *NumberReader) number(weight, name []byte, yield func(weight, name []byte, x float64)) {
	text, _ := r.decoder.ReadValue()
	switch {
	case text.Kind() == jsontext.KindNumber:
	case string(text) == `"NaN"` || string(text) == `"Inf"` || string(text) == `"-Inf"`:
		text = text[1 : len(text)-1]
	default:
		return
	}
	if x, err := strconv.ParseFloat(string(text), 64); err == nil {
		yield(weight, name, x)
	}
}
