package jinja

import (
	"strconv"
	"strings"
)

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
			value = named(c.line, value, part)
		}
	}
	return value
}

// mapOver applies a filter to every element, or takes an attribute of it.
func mapOver(c *calling, value any) any {
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
