package jinja

import (
	"maps"
	"slices"
	"strings"
)

type call struct {
	*machine
	name       string
	positional []any
	names      []string // of the named arguments
	named      []any
	args       []any // by parameter; absent{} for an omitted one
}

// absent is the value of an omitted argument.
type absent struct{}

// builtin is a method, filter or test. params names its parameters; those after a question mark are
// optional. If params is "*", run reads the arguments itself.
type builtin struct {
	params string
	run    func(c *call, value any) any
}

func (c *call) apply(table map[string]builtin, kind, name string, value any) any {
	b, ok := table[name]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(table)), ", ")
		c.machine.fail("the %s %q is not supported, want one of %s", kind, name, known)
	}
	c.name = name
	if b.params != "*" {
		required, optional, _ := strings.Cut(b.params, "?")
		params := append(strings.Fields(required), strings.Fields(optional)...)
		c.bind(len(strings.Fields(required)), params...)
	}
	return b.run(c, value)
}

// bind assigns the arguments to the parameters, the first of which are required.
func (c *call) bind(required int, params ...string) {
	if len(c.positional) > len(params) {
		c.fail("%d arguments, want at most %d", len(c.positional), len(params))
	}
	c.args = make([]any, len(params))
	for i := range c.args {
		c.args[i] = absent{}
	}
	copy(c.args, c.positional)
	for i, name := range c.names {
		at := slices.Index(params, name)
		switch {
		case at < 0:
			c.fail("unknown argument %q", name)
		case c.has(at):
			c.fail("the argument %q is given twice", name)
		}
		c.args[at] = c.named[i]
	}
	for i := range required {
		if !c.has(i) {
			c.fail("the argument %q is missing", params[i])
		}
	}
}

func (c *call) fail(format string, args ...any) { c.machine.fail(c.name+": "+format, args...) }

func (c *call) has(i int) bool { return c.args[i] != (absent{}) }

// arg returns argument i, or none if it is omitted.
func (c *call) arg(i int) any {
	if c.has(i) {
		return c.args[i]
	}
	return nil
}

// indentation returns argument i, which is a text or a number of spaces.
func (c *call) indentation(i int, otherwise int64) string {
	if s, ok := c.arg(i).(string); ok {
		return s
	}
	return c.repeat(" ", c.integer(i, otherwise)).(string)
}

// text returns argument i, which must be a string, or "" if it is omitted or none.
func (c *call) text(i int) string { return c.string(c.args[i]) }

func (c *call) string(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case absent, nil:
		return ""
	}
	c.fail("the argument is %s, want a string", typeName(value))
	return ""
}

// integer returns argument i, which must be an integer, or the default if it is omitted or none.
func (c *call) integer(i int, otherwise int64) int64 {
	switch c.args[i].(type) {
	case absent, nil:
		return otherwise
	}
	n, _, kind := asNumber(c.args[i])
	if kind != 'i' {
		c.fail("the argument is %s, want an integer", typeName(c.args[i]))
	}
	return n
}

func is[T any](value any) bool {
	_, ok := value.(T)
	return ok
}
