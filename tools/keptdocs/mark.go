package keptdocs

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"

	"github.com/BurntSushi/toml"
)

// mark is what the comment before a result says.
type mark struct {
	Study string `toml:"study"` // name of the file of kept results
	// Table or Figure is the number of one of the study file, from 1.
	Table  int `toml:"table"`
	Figure int `toml:"figure"`
	// Where restricts a table: labels by axis.
	Where map[string][]string `toml:"-"`
	// At are the labels of the entry of a number, and Show says what of it: "mean",
	// "difference", "choice" or "n".
	At   map[string]string `toml:"at"`
	Show string            `toml:"show"`

	alone      bool // on a line of its own: a table or a figure
	line       int
	start, end int // of what stands between the comments
}

var comments = regexp.MustCompile(`(?s)<!--\s*kept\s+(\{.*?\})\s*-->(.*?)<!--\s*/kept\s*-->`)

// loose finds comments that should belong to a pair.
var loose = regexp.MustCompile(`<!--\s*/?kept\b`)

// marks finds the places of results in a document.
func marks(text []byte) ([]mark, error) {
	var list []mark
	lineOf := func(at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }
	text = withoutCode(text)
	last := 0
	for _, at := range append(comments.FindAllSubmatchIndex(text, -1), []int{len(text), len(text)}) {
		if stray := loose.FindIndex(text[last:at[0]]); stray != nil {
			return nil, fmt.Errorf("line %d: a comment about kept results without its other half", lineOf(last+stray[0]))
		}
		last = at[1]
		if len(at) == 2 {
			break
		}
		m, err := parseMark(string(text[at[2]:at[3]]))
		if err == nil {
			m.start, m.end, m.line = at[4], at[5], lineOf(at[0])
			m.alone = bytes.HasPrefix(text[at[3]:], []byte(" -->\n"))
			err = m.check()
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", lineOf(at[0]), err)
		}
		list = append(list, m)
	}
	return list, nil
}

// withoutCode blanks blocks of code, which may show such comments. Places stay as they are.
func withoutCode(text []byte) []byte {
	out := bytes.Clone(text)
	inside, at := false, 0
	for l := range bytes.Lines(text) {
		fence := bytes.HasPrefix(l, []byte("```"))
		if inside && !fence {
			for i := range len(bytes.TrimSuffix(l, []byte("\n"))) {
				out[at+i] = ' '
			}
		}
		if fence {
			inside = !inside
		}
		at += len(l)
	}
	return out
}

// parseMark reads the table of a comment, whose lines count as one.
func parseMark(table string) (mark, error) {
	var doc struct {
		Mark struct {
			mark
			Where map[string]any `toml:"where"`
		} `toml:"mark"`
	}
	meta, err := toml.Decode("mark = "+string(bytes.Join(bytes.Fields([]byte(table)), []byte(" "))), &doc)
	if err != nil {
		return mark{}, err
	}
	m := doc.Mark.mark
	m.Where = map[string][]string{}
	for axis, v := range doc.Mark.Where {
		if m.Where[axis], err = labels(v); err != nil {
			return m, fmt.Errorf("where.%s: %w", axis, err)
		}
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return m, fmt.Errorf("unknown key %s; there are study, table, figure, where, at and show", unknown[0][1:])
	}
	return m, nil
}

// labels are one label or an array of them.
func labels(v any) ([]string, error) {
	list, several := v.([]any)
	if !several {
		list = []any{v}
	}
	var out []string
	for _, v := range list {
		label, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("found %v, want a label or an array of labels", v)
		}
		out = append(out, label)
	}
	return out, nil
}

func (m *mark) check() error {
	switch {
	case m.Study == "":
		return fmt.Errorf(`study: want the name of kept results, such as "effect"`)
	case m.Figure != 0 && (m.Table != 0 || m.Figure < 1):
		return fmt.Errorf("figure: found %d, want the number of a figure of the study, from 1, and no table", m.Figure)
	case m.Figure > 0 && !m.alone:
		return fmt.Errorf("figure: want the comment on a line of its own")
	case m.Figure > 0 && (m.Show != "" || len(m.At) > 0):
		return fmt.Errorf("at and show are for numbers within a line, not for figures")
	case m.Figure > 0:
		return nil
	case m.Table < 1:
		return fmt.Errorf("table: found %d, want the number of a table of the study, from 1", m.Table)
	case m.alone && (m.Show != "" || len(m.At) > 0):
		return fmt.Errorf("at and show are for numbers within a line, not for tables")
	case !m.alone && !slices.Contains([]string{"mean", "difference", "choice", "n"}, m.Show):
		return fmt.Errorf(`show: found %q, want "mean", "difference", "choice" or "n"`, m.Show)
	}
	return nil
}
