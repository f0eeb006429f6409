package tasks

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

type renderedDoc struct {
	questions []string // one, or one per choice
	choices   []string
	gold      int    // index of the right choice
	target    string // for continuations and generated texts
}

func (t *Task) renderDoc(d Doc) (a renderedDoc, err error) {
	for _, source := range t.Question {
		q, err := t.render("question", source, d)
		if err != nil {
			return a, err
		}
		a.questions = append(a.questions, t.cleanText(q))
	}
	if t.Target != "" {
		if a.target, err = t.render("target", t.Target, d); err != nil {
			return a, err
		}
	}
	if t.Kind != Choices {
		return a, nil
	}
	if a.choices, err = t.choices(d, a.target); err != nil {
		return a, err
	}
	a.gold, err = t.gold(d, len(a.choices))
	return a, err
}

// choices returns the continuations to choose from. With a question for each, all are the target.
func (t *Task) choices(d Doc, target string) (list []string, err error) {
	if len(t.Question) > 1 {
		return slices.Repeat([]string{target}, len(t.Question)), nil
	}
	if t.ChoicesOf != "" {
		list, err = d.list(t.ChoicesOf)
	}
	for _, source := range t.Choice {
		c, err := t.render("choices", source, d)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	for i := range list {
		list[i] = t.cleanText(list[i])
	}
	if err == nil && len(list) < 2 {
		err = fmt.Errorf("%s: got %d choices, want two or more", d.Position, len(list))
	}
	return list, err
}

func (t *Task) gold(d Doc, choices int) (int, error) {
	text, err := t.render("gold", t.Gold, d)
	if err != nil {
		return 0, err
	}
	at, err := strconv.Atoi(strings.TrimSpace(text))
	if t.GoldOf != "" {
		var labels []string
		if labels, err = d.list(t.GoldOf); err == nil {
			at = slices.Index(labels, text)
		}
	}
	if err != nil || at < 0 || at >= choices {
		return 0, fmt.Errorf("%s: the correct choice is %q, which is none of the %d choices",
			d.Position, text, choices)
	}
	return at, nil
}

// question returns the text before the answer, which may depend on the choice.
func (a renderedDoc) question(choice int) string {
	return a.questions[min(choice, len(a.questions)-1)]
}

func (a renderedDoc) answer() string {
	if len(a.choices) > 0 {
		return a.choices[a.gold]
	}
	return a.target
}

// Doc is a row of data.
type Doc struct {
	Position string // of the row, for messages
	text     string // the row as JSON
	fields   *jinja.Dict
}

// NewDoc parses a row, given as a JSON object, which must have the task's columns. Rows of fixed
// examples may have a question and a target instead.
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
			return Doc{}, fmt.Errorf("%s: the row has no %q: %s needs the columns %s",
				place, name, t.Name, strings.Join(columns, ", "))
		}
	}
	return Doc{place, string(object), fields}, nil
}

func (t *Task) render(key, source string, d Doc) (string, error) {
	variables := map[string]any{}
	for _, key := range d.fields.Keys() {
		variables[key], _ = d.fields.Get(key)
	}
	r, err := t.templates[source].Render(variables, time.Time{}, jinja.Limits{Strict: true})
	if e, ok := errors.AsType[*jinja.Error](err); ok && !e.Raised {
		return "", fmt.Errorf("%s: %s = %q: %s", d.Position, key, source, e.Problem)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", d.Position, err)
	}
	return r.Text, nil
}

func (t *Task) cleanText(s string) string {
	if t.Strip {
		s = strip(s)
	}
	for i, p := range t.clean {
		s = p.ReplaceAllLiteralString(s, t.Clean[i][1])
	}
	return s
}

// list returns the strings in a column such as "choices.text".
func (d Doc) list(column string) ([]string, error) {
	var value any = d.fields
	for _, key := range strings.Split(column, ".") {
		fields, ok := value.(*jinja.Dict)
		if ok {
			value, ok = fields.Get(key)
		}
		if !ok {
			return nil, fmt.Errorf("%s: there is no %q", d.Position, column)
		}
	}
	elements, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: %s is not a list", d.Position, column)
	}
	texts := make([]string, len(elements))
	for i, e := range elements {
		if texts[i], ok = e.(string); !ok {
			return nil, fmt.Errorf("%s: %s[%d] is not a string", d.Position, column, i)
		}
	}
	return texts, nil
}

// space holds the characters that Python's str.strip removes.
const space = "\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005" +
	"\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

func strip(s string) string { return strings.Trim(s, space) }
