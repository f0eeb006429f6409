package plaintoml

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/schema"
)

// Error is one problem of a document. Its text is "file:line: key: message; hint",
// without the parts that are empty.
type Error struct {
	File string // path of the file, or "--set KEY=VALUE" for an override
	Line int    // from 1; 0 for an override, or when the file could not be read
	Key  string // full dotted key; "" if the problem belongs to no key
	Msg  string // what was found
	Hint string // what would be right

	Cause error // such as fs.ErrNotExist for a file that is missing; it may be nil
}

// Error implements error.
func (e *Error) Error() string {
	var parts []string
	switch {
	case e.File != "" && e.Line > 0:
		parts = append(parts, e.File+":"+strconv.Itoa(e.Line))
	case e.File != "":
		parts = append(parts, e.File)
	}
	if e.Key != "" {
		parts = append(parts, e.Key)
	}
	msg := e.Msg
	if e.Hint != "" {
		msg += "; " + e.Hint
	}
	return strings.Join(append(parts, msg), ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errors is a list of all problems of a document, in the order of the file, with
// those of overrides last. Its text has one line for each.
type Errors []*Error

// Error implements the error interface.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.Is and errors.As see every problem.
func (es Errors) Unwrap() []error {
	all := make([]error, len(es))
	for i, e := range es {
		all[i] = e
	}
	return all
}

// Sort puts the problems into the order in which they are shown.
func (es Errors) Sort() {
	slices.SortStableFunc(es, func(a, b *Error) int {
		byFile := 0
		switch {
		case a.Line > 0 && b.Line > 0: // files do not mix; overrides keep their order
			byFile = cmp.Compare(a.File, b.File)
		case a.Line > 0 || b.Line > 0: // an override has no line and comes after the file
			byFile = cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(byFile, cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Msg, b.Msg))
	})
}

// oneLine makes text of unknown content fit for a message: short, and without
// line breaks and other control characters.
func oneLine(s string) string { return printable(schema.Clipped(s, 160)) }
