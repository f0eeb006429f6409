package scaling

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// ParseJSON reads points from a JSON array of objects; see [ReadFile]. path is what
// messages name.
func ParseJSON(path string, text []byte) ([]Point, error) {
	p := jsonParser{file: path, text: text, dec: json.NewDecoder(bytes.NewReader(text))}
	p.array()
	if p.problems == nil && p.points == nil {
		p.fail(0, "no points in the array")
	}
	if p.problems != nil {
		return nil, p.problems
	}
	return p.points, nil
}

type jsonParser struct {
	file     string
	text     []byte
	dec      *json.Decoder
	points   []Point
	problems Problems
}

func (p *jsonParser) fail(line int, format string, args ...any) {
	p.problems = append(p.problems, &Problem{p.file, line, fmt.Sprintf(format, args...)})
}

// lineAt is the line of an offset; of white space and commas, that of what follows.
func (p *jsonParser) lineAt(offset int64) int {
	rest := p.text[min(int(offset), len(p.text)):]
	skipped := len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,"))
	return 1 + bytes.Count(p.text[:min(int(offset)+skipped, len(p.text))], []byte("\n"))
}

func (p *jsonParser) syntax(err error) {
	line := p.lineAt(p.dec.InputOffset())
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		line = 1 + bytes.Count(p.text[:min(int(e.Offset), len(p.text))], []byte("\n"))
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	p.fail(line, "not valid JSON: %v", err)
}

func (p *jsonParser) array() {
	first, err := p.dec.Token()
	if err != nil {
		p.syntax(err)
		return
	}
	if first != json.Delim('[') {
		p.fail(1, "want an array of objects, each with n, d, method, bits, and loss or ppl")
		return
	}
	for p.dec.More() {
		line := p.lineAt(p.dec.InputOffset())
		var fields map[string]json.RawMessage
		err := p.dec.Decode(&fields)
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			p.fail(line, "found %s where a point should be; want an object", e.Value)
			continue
		}
		if err != nil {
			p.syntax(err)
			return
		}
		p.object(line, fields)
	}
	if _, err := p.dec.Token(); err != nil {
		p.syntax(err)
		return
	}
	if p.dec.More() {
		p.fail(p.lineAt(p.dec.InputOffset()), "something follows the array")
	}
}

func (p *jsonParser) object(line int, fields map[string]json.RawMessage) {
	before := len(p.problems)
	_, loss := fields["loss"]
	_, ppl := fields["ppl"]
	if loss == ppl {
		p.fail(line, "want one of loss (nats per token) and ppl (its exponential)")
	}
	for _, name := range columns[:4] {
		if _, ok := fields[name]; !ok {
			p.fail(line, "no %s; %s", name, wanted)
		}
	}
	point := Point{Source: fmt.Sprintf("%s:%d", p.file, line)}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		p.field(line, &point, name, fields[name])
	}
	if len(p.problems) > before {
		return
	}
	if wrong := point.check(); wrong != "" {
		p.fail(line, "%s", wrong)
		return
	}
	p.points = append(p.points, point)
}

func (p *jsonParser) field(line int, point *Point, name string, raw json.RawMessage) {
	null := string(raw) == "null"
	switch {
	case !slices.Contains(columns, name):
		p.fail(line, "unknown key %q; %s", name, wanted)
	case name == "method":
		if json.Unmarshal(raw, &point.Method) != nil || null {
			p.fail(line, "method is %s; want a string", clip(raw))
		}
	default:
		var x float64
		if json.Unmarshal(raw, &x) != nil || null {
			p.fail(line, "%s is %s; want a number", name, clip(raw))
		}
		point.set(name, x)
	}
}

// clip shortens what a message quotes.
func clip(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + " …"
	}
	return string(raw)
}
