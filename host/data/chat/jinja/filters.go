package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// filters are set when the program starts, because some of them call others.
var filters map[string]func(c *calling, value any) any

func init() {
	filters = map[string]func(c *calling, value any) any{
		"trim":       func(c *calling, v any) any { return strip(c.text(v), c.bind(0, "chars")[0], true, true) },
		"upper":      func(c *calling, v any) any { return transformed(c, c.text(v), upper) },
		"lower":      func(c *calling, v any) any { return transformed(c, c.text(v), lower) },
		"capitalize": func(c *calling, v any) any { return transformed(c, c.text(v), capitalize) },
		"title":      func(c *calling, v any) any { return transformed(c, c.text(v), titleFilter) },
		"string":     func(c *calling, v any) any { return c.text(v) },
		"safe":       func(c *calling, v any) any { return c.text(v) },
		"length":     lengthOf,
		"count":      lengthOf,
		"tojson":     toJSON,
		"default":    defaultTo,
		"d":          defaultTo,
		"join":       join,
		"list":       func(c *calling, v any) any { return c.m.elements(c.line, v) },
		"first":      func(c *calling, v any) any { return c.end(v, 0) },
		"last":       func(c *calling, v any) any { return c.end(v, -1) },
		"reverse":    reverse,
		"replace":    replace,
		"items":      items,
		"int":        toInteger,
		"map":        mapFilter,
		"select":     func(c *calling, v any) any { return c.choose(v, "", true) },
		"reject":     func(c *calling, v any) any { return c.choose(v, "", false) },
		"selectattr": func(c *calling, v any) any { return c.choose(v, "attribute", true) },
		"rejectattr": func(c *calling, v any) any { return c.choose(v, "attribute", false) },
	}
}

// filter returns the filter of this name. As in Jinja, one that there is not is an error
// only where it is used.
func (c *calling) filter(name string) func(c *calling, value any) any {
	run := filters[name]
	if run == nil {
		fail(c.line, "the filter %q is not supported: there are %s", name, known(filters))
	}
	return run
}

// elements are those of a value; one that counts as false has none.
func (c *calling) elements(value any) List {
	if !truth(value) {
		return nil
	}
	return c.m.elements(c.line, value)
}

// text is the input of a filter that works on text.
func (c *calling) text(value any) string { return c.m.str(c.line, value) }

func lengthOf(c *calling, value any) any {
	n := length(value)
	if n < 0 {
		c.fail("%s has no length", typeName(value))
	}
	return int64(n)
}

// defaultTo replaces what is undefined, or with a second argument that is true, what is
// false.
func defaultTo(c *calling, value any) any {
	args := c.bind(0, "default_value", "boolean")
	_, missing := value.(*undefined)
	if !missing && !(truthOf(args[1]) && !truth(value)) {
		return value
	}
	if args[0] == (absent{}) {
		return ""
	}
	return args[0]
}

func join(c *calling, value any) any {
	args := c.bind(0, "d", "attribute")
	list := c.m.elements(c.line, value)
	if args[1] != (absent{}) {
		list = c.attributes(list, c.str(args[1], ""), nil)
	}
	return c.joined(list, c.str(args[0], ""), false)
}

func (c *calling) end(value any, at int64) any {
	if s, ok := value.(string); ok {
		return c.m.element(c.line, s, at)
	}
	list := c.m.elements(c.line, value)
	if len(list) == 0 {
		return &undefined{"the " + c.what + " element of an empty list"}
	}
	return c.m.element(c.line, list, at)
}

func reverse(c *calling, value any) any {
	if s, ok := value.(string); ok {
		c.m.make(c.line, 5*len(s))
		runes := []rune(s)
		slices.Reverse(runes)
		return string(runes)
	}
	list := c.m.elements(c.line, value)
	c.m.make(c.line, 16*len(list))
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func replace(c *calling, value any) any {
	args := c.bind(2, "old", "new", "count")
	return c.replace(c.text(value), c.text(args[0]), c.text(args[1]), c.integer(args[2], -1))
}

func items(c *calling, value any) any {
	switch v := value.(type) {
	case *Dict:
		c.m.make(c.line, 64*len(v.keys))
		return v.items()
	case *undefined:
		return List{}
	}
	c.fail("the input is %s, want a mapping", typeName(value))
	return nil
}

// toInteger reads an integer, or returns the default, 0, where there is none.
func toInteger(c *calling, value any) any {
	otherwise := c.integer(c.bind(0, "default")[0], 0)
	switch v := value.(type) {
	case string:
		if n, err := strconv.ParseInt(strings.TrimFunc(v, isSpace), 10, 64); err == nil {
			return n
		}
		x, err := strconv.ParseFloat(strings.TrimFunc(v, isSpace), 64)
		if err != nil {
			return otherwise
		}
		value = x
	case bool, int64:
		i, _, _ := asNumber(v)
		return i
	}
	if x, ok := value.(float64); ok && math.Abs(x) < 1<<63 {
		return int64(x)
	}
	return otherwise
}

// attributes are an attribute of each element; otherwise stands for missing ones.
func (c *calling) attributes(list List, name string, otherwise any) List {
	c.m.make(c.line, 16*len(list))
	out := make(List, len(list))
	for i, element := range list {
		out[i] = c.attributeOf(element, name)
		if _, missing := out[i].(*undefined); missing && otherwise != nil {
			out[i] = otherwise
		}
	}
	return out
}

// attributeOf follows a path such as "function.name" or "0".
func (c *calling) attributeOf(value any, path string) any {
	for part := range strings.SplitSeq(path, ".") {
		c.m.step(c.line)
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			value = c.m.element(c.line, value, n)
		} else {
			value = elementOrMethod(c.line, value, part)
		}
	}
	return value
}

// mapFilter applies a filter to every element, or takes an attribute of it.
func mapFilter(c *calling, value any) any {
	list := c.elements(value)
	if len(c.positional) == 0 {
		args := c.bind(0, "attribute", "default")
		if args[0] == (absent{}) {
			c.fail(`want the name of a filter, or attribute="NAME"`)
		}
		otherwise := args[1]
		if otherwise == (absent{}) {
			otherwise = nil
		}
		return c.attributes(list, c.text(args[0]), otherwise)
	}
	name := c.str(c.positional[0], "")
	run := c.filter(name)
	c.m.enter(c.line)
	defer func() { c.m.depth-- }()
	inner := *c
	inner.what, inner.positional = name, c.positional[1:]
	c.m.make(c.line, 16*len(list))
	out := make(List, len(list))
	for i, element := range list {
		c.m.step(c.line)
		out[i] = run(&inner, element)
	}
	return out
}

// choose keeps the elements that pass a test, or that do not; with attribute, what is
// tested is an attribute. Without a test it is their truth.
func (c *calling) choose(value any, attribute string, keep bool) any {
	inner := *c
	args := c.positional
	path := ""
	if attribute != "" {
		if len(args) == 0 {
			c.fail("the name of an attribute is missing")
		}
		path, args = c.text(args[0]), args[1:]
	}
	passes := func(_ *calling, v any) any { return truth(v) }
	if len(args) > 0 {
		name := c.str(args[0], "")
		passes = c.test(name)
		inner.what, args = name, args[1:]
	}
	inner.positional = args
	out := List{}
	for _, element := range c.elements(value) {
		c.m.step(c.line)
		tested := element
		if attribute != "" {
			tested = c.attributeOf(element, path)
		}
		if truth(passes(&inner, tested)) == keep {
			out = append(out, element)
		}
	}
	return out
}
