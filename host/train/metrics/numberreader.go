package metrics

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// NumberReader reads all numbers in lines of metrics.jsonl, whatever their names. The
// zero value is ready to use.
//
// A record in the form in which it is written is read without allocations, several times
// as fast as by encoding/json, which reads all others.
type NumberReader struct{ s scanner }

// Each passes every number in a line to yield, with its name; those of [Record.Weights]
// with the name of the weight, all others with an empty one. It reports whether the line
// is a JSON object; if it is not, nothing is passed. The slices are valid only during the
// call.
func (r *NumberReader) Each(line []byte, yield func(weight, name []byte, x float64)) bool {
	r.s.text, r.s.list = line, r.s.list[:0]
	if !r.s.object(nil, 0) || !r.s.end() {
		return eachSlowly(line, yield)
	}
	for _, n := range r.s.list {
		yield(n.weight, n.name, n.x)
	}
	return true
}

// eachSlowly is Each for all that is JSON. Of a name that stands twice the last counts.
func eachSlowly(line []byte, yield func(weight, name []byte, x float64)) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || fields == nil {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var n Number
		if n.UnmarshalJSON(fields[name]) == nil {
			yield(nil, []byte(name), float64(n))
		}
	}
	var weights map[string]map[string]json.RawMessage
	if json.Unmarshal(fields["weights"], &weights) != nil {
		return true
	}
	for _, weight := range slices.Sorted(maps.Keys(weights)) {
		for _, name := range slices.Sorted(maps.Keys(weights[weight])) {
			var n Number
			if n.UnmarshalJSON(weights[weight][name]) == nil {
				yield([]byte(weight), []byte(name), float64(n))
			}
		}
	}
	return true
}

type plainNumber struct {
	weight, name []byte
	x            float64
}

// scanner reads records as [Writer] writes them: objects of numbers and plain strings,
// without spaces. It gives up on everything else.
type scanner struct {
	text []byte
	list []plainNumber
}

func (s *scanner) end() bool { return len(s.text) == 0 }

func (s *scanner) take(c byte) bool {
	if len(s.text) == 0 || s.text[0] != c {
		return false
	}
	s.text = s.text[1:]
	return true
}

// weightsKey is the one object in a record.
var weightsKey = []byte("weights")

// object reads {…}: a record at depth 0, its weights at depth 1, one of them at depth 2.
func (s *scanner) object(weight []byte, depth int) bool {
	if !s.take('{') {
		return false
	}
	if s.take('}') {
		return true
	}
	for {
		name, ok := s.name()
		if !ok || !s.take(':') || !s.value(weight, name, depth) {
			return false
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *scanner) value(weight, name []byte, depth int) bool {
	switch {
	case depth == 0 && bytes.Equal(name, weightsKey):
		return s.object(nil, 1)
	case depth == 1:
		return s.object(name, 2)
	}
	x, ok := s.number()
	if ok {
		s.list = append(s.list, plainNumber{weight, name, x})
	}
	return ok
}

// name reads a string without escapes, of printable ASCII.
func (s *scanner) name() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	for i, c := range s.text {
		if c == '"' {
			name := s.text[:i]
			s.text = s.text[i+1:]
			return name, true
		}
		if c < ' ' || c > '~' || c == '\\' {
			break
		}
	}
	return nil, false
}

// number reads a number, or one of the strings of [Number].
func (s *scanner) number() (float64, bool) {
	if len(s.text) > 0 && s.text[0] == '"' {
		name, ok := s.name()
		switch string(name) {
		case "NaN", "Inf", "-Inf":
			x, _ := strconv.ParseFloat(string(name), 64)
			return x, ok
		}
		return 0, false
	}
	n := bytes.IndexAny(s.text, ",}")
	if n <= 0 || !plainFloat(s.text[:n]) {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(s.text[:n]), 64)
	s.text = s.text[n:]
	return x, err == nil
}

// plainFloat tells whether a text is a number of JSON: an optional minus, digits without a
// zero in front, a fraction, an exponent.
func plainFloat(b []byte) bool {
	b = bytes.TrimPrefix(b, []byte{'-'})
	n := digits(b)
	if n == 0 || n > 1 && b[0] == '0' {
		return false
	}
	b = b[n:]
	if len(b) > 0 && b[0] == '.' {
		if n = digits(b[1:]); n == 0 {
			return false
		}
		b = b[1+n:]
	}
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		b = b[1:]
		if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		n = digits(b)
		return n > 0 && n == len(b)
	}
	return len(b) == 0
}

func digits(b []byte) int {
	n := 0
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	return n
}
