package tasks

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// Doc is a row of data.
type Doc struct {
	Place  string // where the row is from, for messages
	text   string // the row as it is written
	fields *jinja.Dict
}

// NewDoc parses a row, a JSON object, which must have the columns of the task. Rows of fixed examples have a question
// and a target instead.
func (t *Task) NewDoc(place string, object []byte, example bool) (Doc, error) {
	value, err := jinja.FromJSON(object)
	if err != nil {
		return Doc{}, fmt.Errorf("%s: %w", place, err)
	}
	fields, ok := value.(*jinja.Dict)
	if !ok {
		return Doc{}, fmt.Errorf("%s: want an object", place)
	}
	columns := t.Columns
	if _, has := fields.Get("target"); example && has {
		columns = []string{"question", "target"}
	}
	for _, name := range columns {
		if _, ok := fields.Get(name); !ok {
			return Doc{}, fmt.Errorf("%s: the row has no %q: %s needs the columns %s", place, name, t.Name, strings.Join(columns, ", "))
		}
	}
	return Doc{place, string(object), fields}, nil
}

// render fills in a template, which is the value of a key.
func (t *Task) render(key, source string, d Doc) (string, error) {
	p, err := jinja.Parse(t.Name, source)
	if err != nil {
		return "", err
	}
	variables := map[string]any{}
	for _, key := range d.fields.Keys() {
		variables[key], _ = d.fields.Get(key)
	}
	r, err := p.Render(variables, time.Time{}, jinja.Limits{Strict: true})
	if e, ok := errors.AsType[*jinja.Error](err); ok && !e.Raised {
		return "", fmt.Errorf("%s: %s = %q: %s", d.Place, key, source, e.Problem)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", d.Place, err)
	}
	return r.Text, nil
}

// cleanText returns a question or a choice as the task wants it.
func (t *Task) cleanText(s string) string {
	if t.Strip {
		s = strip(s)
	}
	for i, p := range t.clean {
		s = p.ReplaceAllLiteralString(s, t.Clean[i][1])
	}
	return s
}

// list is the list of texts in a column, as in "choices.text".
func (d Doc) list(column string) ([]string, error) {
	var value any = d.fields
	for _, key := range strings.Split(column, ".") {
		fields, ok := value.(*jinja.Dict)
		if ok {
			value, ok = fields.Get(key)
		}
		if !ok {
			return nil, fmt.Errorf("%s: there is no %q", d.Place, column)
		}
	}
	elements, ok := value.(jinja.List)
	if !ok {
		return nil, fmt.Errorf("%s: %s is no list", d.Place, column)
	}
	texts := make([]string, len(elements))
	for i, e := range elements {
		if texts[i], ok = e.(string); !ok {
			return nil, fmt.Errorf("%s: %s[%d] is no text", d.Place, column, i)
		}
	}
	return texts, nil
}

// space is what Python's str.strip removes.
const space = "\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

func strip(s string) string       { return strings.Trim(s, space) }
func stripBehind(s string) string { return strings.TrimRight(s, space) }
