package jinja

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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

var globals = map[string]any{
	"raise_exception": &function{"raise_exception", func(c *calling) any {
		message := c.m.str(c.line, c.bind(1, "message")[0])
		panic(&Error{Line: c.line, Problem: message, Raised: true})
	}},
	"strftime_now": &function{"strftime_now", strftime},
	"namespace": &function{"namespace", func(c *calling) any {
		return &namespace{*c.dict()}
	}},
	"dict":  &function{"dict", func(c *calling) any { return c.dict() }},
	"range": &function{"range", span},
}

// dict is made of a mapping and of named arguments.
func (c *calling) dict() *Dict {
	d := &Dict{}
	if len(c.positional) > 1 {
		c.fail("%d arguments, want at most a mapping and named ones", len(c.positional))
	}
	for _, from := range c.positional {
		other, ok := from.(*Dict)
		if !ok {
			c.fail("the argument is %s, want a mapping", typeName(from))
		}
		c.m.make(c.line, 64*len(other.keys))
		for _, key := range other.keys {
			d.Set(key, other.values[key])
		}
	}
	for i, name := range c.names {
		d.Set(name, c.named[i])
	}
	return d
}

// span is range(stop) or range(start, stop, step).
func span(c *calling) any {
	args := c.bind(1, "start", "stop", "step")
	start, stop, step := int64(0), c.integer(args[0], 0), int64(1)
	if args[1] != (absent{}) {
		start, stop, step = stop, c.integer(args[1], 0), c.integer(args[2], 1)
	}
	if step == 0 {
		c.fail("the step is 0")
	}
	list := List{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; {
		if len(list) == maxRange {
			c.fail("more than %d elements", maxRange)
		}
		c.m.make(c.line, 16)
		list = append(list, i)
		next := i + step
		if (next > i) != (step > 0) {
			break // the next one does not fit into 64 bits
		}
		i = next
	}
	return list
}

// dateFormats are the directives of strftime, as layouts of package time.
var dateFormats = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'Z': "MST", 'z': "-0700",
}

// strftime writes the time of the rendering.
func strftime(c *calling) any {
	format := c.str(c.bind(1, "format")[0], "")
	c.m.make(c.line, 16*len(format))
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.WriteByte(format[i])
			continue
		}
		if i++; i == len(format) {
			c.fail("the format %q ends in %%", format)
		}
		layout, ok := dateFormats[format[i]]
		switch {
		case ok:
			out.WriteString(c.m.now.Format(layout))
		case format[i] == '%':
			out.WriteByte('%')
		case format[i] == '-' && i+1 < len(format) && strings.IndexByte("dmHIMSj", format[i+1]) >= 0:
			i++
			out.WriteString(cmp.Or(strings.TrimLeft(c.m.now.Format(dateFormats[format[i]]), "0"), "0"))
		default:
			c.fail("the directive %s is not supported", fmt.Sprintf("%%%c", format[i]))
		}
	}
	return out.String()
}
