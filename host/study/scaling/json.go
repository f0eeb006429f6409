package scaling

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
)

// ParseJSON parses points from a JSON array of objects; see [ReadFile]. path is the name
// used in messages.
func ParseJSON(path string, text []byte) ([]Point, error) {
	p := jsonParser{reading{file: path}, text, json.NewDecoder(bytes.NewReader(text))}
	p.array()
	return p.result("no points in the array")
}

type jsonParser struct {
	reading
	text []byte
	dec  *json.Decoder
}

// lineAt is the line of an offset, or of what follows the white space and commas there.
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
	message := plainjson.Explain(p.text, err).Error()
	p.fail(line, "%s", strings.TrimPrefix(message, fmt.Sprintf("line %d: ", line)))
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
	has := func(name string) bool { _, ok := fields[name]; return ok }
	if has("loss") == has("ppl") {
		p.fail(line, "want one of loss (nats per token) and ppl (its exponential)")
	}
	p.missing(line, "", has)
	var point Point
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		p.field(line, &point, name, fields[name])
	}
	if len(p.problems) == before {
		p.add(line, point)
	}
}

func (p *jsonParser) field(line int, point *Point, name string, raw json.RawMessage) {
	null := string(raw) == "null"
	switch {
	case !slices.Contains(columns, name):
		p.fail(line, "unknown key %q; %s", name, wantColumns)
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
