package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// mark is the parsed comment that precedes a result.
type mark struct {
	Study string // name of the file of kept results
	// Table and Figure are numbers of a table or a figure in the study file, starting at 1.
	Table  int
	Figure int
	// Where restricts a table or figure to the given labels of axes.
	Where map[string][]string
	// At holds the labels of a single number's entry, of which Show selects "mean", "difference",
	// "choice" or "n". For a table, Show is "differences" to omit the means, or empty.
	At   map[string]string
	Show string

	alone      bool // on a separate line: a table or a figure
	line       int
	start, end int // of the text between the comments
}

// differences is the value of Show that omits a table's means.
const differences = "differences"

var comments = regexp.MustCompile(`(?s)<!--\s*kept\s+(\{.*?\})\s*-->(.*?)<!--\s*/kept\s*-->`)

// loose matches any of the comments, including one that is not part of a pair.
var loose = regexp.MustCompile(`<!--\s*/?kept\b`)

func marks(text []byte) ([]mark, error) {
	var list []mark
	lineOf := func(at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }
	text = withoutCode(text)
	last := 0
	for _, at := range append(comments.FindAllSubmatchIndex(text, -1), []int{len(text), len(text)}) {
		if stray := loose.FindIndex(text[last:at[0]]); stray != nil {
			return nil, fmt.Errorf("line %d: unpaired comment about kept results",
				lineOf(last+stray[0]))
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

// withoutCode replaces code blocks, which may contain such comments, by spaces. Offsets stay valid.
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

// parseMark parses a comment's inline TOML table, which may span several lines.
func parseMark(text string) (mark, error) {
	doc, err := plaintoml.Parse("", []byte("mark = "+strings.Join(strings.Fields(text), " ")))
	if err != nil {
		return mark{}, err
	}
	m := mark{Where: map[string][]string{}, At: map[string]string{}}
	r := plaintoml.NewReader(doc.Table("mark"))
	var where, at map[string]any
	r.Read("", r.Values(), schema.Key{Name: "study", To: &m.Study, Default: ""},
		schema.Key{Name: "table", To: &m.Table, Default: 0},
		schema.Key{Name: "figure", To: &m.Figure, Default: 0},
		schema.Key{Name: "where", To: &where, Optional: "everything"},
		schema.Key{Name: "at", To: &at, Optional: "none"},
		schema.Key{Name: "show", To: &m.Show, Default: ""})
	for axis, raw := range where {
		var labels []string
		if found, _ := (schema.Key{To: &labels}).Read(raw); found != "" {
			r.Report("where."+axis, found, "want a label or an array of labels")
		}
		m.Where[axis] = labels
	}
	for axis, raw := range at {
		label, ok := raw.(string)
		if !ok {
			r.Report("at."+axis, "found "+schema.Describe(raw), "want a label")
		}
		m.At[axis] = label
	}
	return m, r.Err()
}

func (m *mark) check() error {
	switch {
	case m.Study == "":
		return fmt.Errorf(`study: want the name of kept results, such as "effect"`)
	case m.Figure != 0 && (m.Table != 0 || m.Figure < 1):
		return fmt.Errorf("figure: found %d, want a figure number from 1, and no table",
			m.Figure)
	case m.Figure > 0 && !m.alone:
		return fmt.Errorf("figure: want the comment on a separate line")
	case m.Figure > 0 && (m.Show != "" || len(m.At) > 0):
		return fmt.Errorf("at and show are for numbers within a line, not for figures")
	case m.Figure > 0:
		return nil
	case m.Table < 1:
		return fmt.Errorf("table: found %d, want a table number from 1", m.Table)
	case m.alone && len(m.At) > 0:
		return fmt.Errorf("at is for numbers within a line, not for tables")
	case m.alone && m.Show != "" && m.Show != differences:
		return fmt.Errorf("show: found %q, want %q, or none for a whole table", m.Show, differences)
	case !m.alone && !slices.Contains([]string{"mean", "difference", "choice", "n"}, m.Show):
		return fmt.Errorf(`show: found %q, want "mean", "difference", "choice" or "n"`, m.Show)
	}
	return nil
}
