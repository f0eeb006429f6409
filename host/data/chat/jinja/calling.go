package jinja

import (
	"slices"
)

// calling is a call of a function, filter or test with the values of its arguments.
type calling struct {
	m          *machine
	line       int
	what       string
	positional List
	names      []string
	named      List
}

func newCalling(m *machine, s *scope, line int, what string, args arguments) *calling {
	c := &calling{m: m, line: line, what: what, names: args.names}
	for _, a := range args.positional {
		c.positional = append(c.positional, a.eval(m, s))
	}
	for _, a := range args.named {
		c.named = append(c.named, a.eval(m, s))
	}
	return c
}

// absent stands for an argument that was left out.
type absent struct{}

// bind returns the values of the parameters, absent{} for each that was left out. The
// first ones, as many as required says, must be there.
func (c *calling) bind(required int, params ...string) List {
	if len(c.positional) > len(params) {
		c.fail("%d arguments, want at most %d", len(c.positional), len(params))
	}
	values := make(List, len(params))
	for i := range values {
		values[i] = absent{}
	}
	copy(values, c.positional)
	for i, name := range c.names {
		at := slices.Index(params, name)
		switch {
		case at < 0:
			c.fail("there is no argument %q", name)
		case values[at] != (absent{}):
			c.fail("the argument %q is given twice", name)
		}
		values[at] = c.named[i]
	}
	for i := range required {
		if values[i] == (absent{}) {
			c.fail("the argument %q is missing", params[i])
		}
	}
	return values
}

func (c *calling) fail(format string, args ...any) { fail(c.line, c.what+": "+format, args...) }

// str returns an argument that must be a string, or the default where it is absent or none.
func (c *calling) str(value any, otherwise string) string {
	switch v := value.(type) {
	case string:
		return v
	case absent, nil:
		return otherwise
	}
	c.fail("the argument is %s, want a string", typeName(value))
	return ""
}

// integer returns an argument that must be an integer, or the default where it is absent
// or none.
func (c *calling) integer(value any, otherwise int64) int64 {
	switch value.(type) {
	case absent, nil:
		return otherwise
	}
	i, _, kind := asNumber(value)
	if kind != 'i' {
		c.fail("the argument is %s, want an integer", typeName(value))
	}
	return i
}
