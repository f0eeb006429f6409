package jinja

import (
	"strings"
	"unicode/utf8"
)

// method returns the method of a value with this name, nil if it has none.
func method(of any, name string) any {
	switch v := of.(type) {
	case string:
		if run := stringMethods[name]; run != nil {
			return &function{name, func(c *calling) any { return run(c, v) }}
		}
	case *Dict:
		if run := dictMethods[name]; run != nil {
			return &function{name, func(c *calling) any { return run(c, v) }}
		}
	case List:
		if run := listMethods[name]; run != nil {
			return &function{name, func(c *calling) any { return run(c, v) }}
		}
	}
	return nil
}

var stringMethods = map[string]func(c *calling, s string) any{
	"strip":      func(c *calling, s string) any { return strip(s, c.bind(0, "chars")[0], true, true) },
	"lstrip":     func(c *calling, s string) any { return strip(s, c.bind(0, "chars")[0], true, false) },
	"rstrip":     func(c *calling, s string) any { return strip(s, c.bind(0, "chars")[0], false, true) },
	"split":      func(c *calling, s string) any { return splitting(c, s, false) },
	"rsplit":     func(c *calling, s string) any { return splitting(c, s, true) },
	"splitlines": func(c *calling, s string) any { return texts(c, s, splitLines(s, truthOf(c.bind(0, "keepends")[0]))) },
	"startswith": func(c *calling, s string) any { return affix(c, s, strings.HasPrefix) },
	"endswith":   func(c *calling, s string) any { return affix(c, s, strings.HasSuffix) },
	"removeprefix": func(c *calling, s string) any {
		return strings.TrimPrefix(s, c.str(c.bind(1, "prefix")[0], ""))
	},
	"removesuffix": func(c *calling, s string) any {
		return strings.TrimSuffix(s, c.str(c.bind(1, "suffix")[0], ""))
	},
	"upper":      func(c *calling, s string) any { return transformed(c, s, upper) },
	"lower":      func(c *calling, s string) any { return transformed(c, s, lower) },
	"capitalize": func(c *calling, s string) any { return transformed(c, s, capitalize) },
	"title":      func(c *calling, s string) any { return transformed(c, s, title) },
	"replace": func(c *calling, s string) any {
		args := c.bind(2, "old", "new", "count")
		return c.replace(s, c.str(args[0], ""), c.str(args[1], ""), c.integer(args[2], -1))
	},
	"join": func(c *calling, s string) any {
		return c.joined(c.m.elements(c.line, c.bind(1, "list")[0]), s, true)
	},
	"find": func(c *calling, s string) any {
		at := strings.Index(s, c.str(c.bind(1, "sub")[0], ""))
		if at < 0 {
			return int64(-1)
		}
		return int64(utf8.RuneCountInString(s[:at]))
	},
	"count": func(c *calling, s string) any {
		return int64(strings.Count(s, c.str(c.bind(1, "sub")[0], "")))
	},
}

// transformed charges for a text that may become up to three times as long.
func transformed(c *calling, s string, change func(string) string) any {
	c.bind(0)
	c.m.make(c.line, 3*len(s))
	return change(s)
}

func texts(c *calling, s string, parts []string) List {
	c.m.make(c.line, len(s)+16*len(parts))
	list := make(List, len(parts))
	for i, part := range parts {
		list[i] = part
	}
	return list
}

func splitting(c *calling, s string, fromRight bool) any {
	args := c.bind(0, "sep", "maxsplit")
	if sep, ok := args[0].(string); ok && sep == "" {
		c.fail("the separator is empty")
	}
	c.m.make(c.line, 32*len(s))
	return texts(c, s, split(s, args[0], c.integer(args[1], -1), fromRight))
}

// affix reports whether a string begins, or ends, with a string or with one of a list.
func affix(c *calling, s string, has func(s, part string) bool) any {
	candidates, ok := c.bind(1, "part")[0].(List)
	if !ok {
		candidates = c.positional
	}
	for _, part := range candidates {
		if has(s, c.str(part, "")) {
			return true
		}
	}
	return false
}

// replace replaces the first count occurrences, all if count is negative.
func (c *calling) replace(s, old, by string, count int64) string {
	n := strings.Count(s, old)
	if count >= 0 {
		n = int(min(count, int64(n)))
	}
	c.m.make(c.line, len(s))
	for range n {
		c.m.make(c.line, len(by))
	}
	return strings.Replace(s, old, by, n)
}

// joined is a list of values as one text; strict demands strings.
func (c *calling) joined(list List, separator string, strict bool) string {
	var out strings.Builder
	for i, element := range list {
		s, ok := element.(string)
		if !ok {
			if strict {
				c.fail("element %d is %s, want a string", i, typeName(element))
			}
			s = c.m.str(c.line, element)
		}
		c.m.make(c.line, len(s)+len(separator))
		if i > 0 {
			out.WriteString(separator)
		}
		out.WriteString(s)
	}
	return out.String()
}

func truthOf(value any) bool { return value != (absent{}) && truth(value) }

var dictMethods = map[string]func(c *calling, d *Dict) any{
	"get": func(c *calling, d *Dict) any {
		args := c.bind(1, "key", "default")
		if key, ok := args[0].(string); ok {
			if value, ok := d.Get(key); ok {
				return value
			}
		}
		if args[1] == (absent{}) {
			return nil
		}
		return args[1]
	},
	"items": func(c *calling, d *Dict) any {
		c.m.make(c.line, 64*len(d.keys))
		return d.items()
	},
	"keys": func(c *calling, d *Dict) any { return c.m.elements(c.line, d) },
	"values": func(c *calling, d *Dict) any {
		c.m.make(c.line, 16*len(d.keys))
		var list List
		for _, key := range d.keys {
			list = append(list, d.values[key])
		}
		return list
	},
	"update": changes[*Dict], "pop": changes[*Dict], "popitem": changes[*Dict], "clear": changes[*Dict], "setdefault": changes[*Dict],
}

var listMethods = map[string]func(c *calling, list List) any{
	"index": func(c *calling, list List) any {
		what := c.bind(1, "value")[0]
		for i, element := range list {
			if c.m.equal(c.line, element, what, 0) {
				return int64(i)
			}
		}
		c.fail("the list does not have this element")
		return nil
	},
	"append": changes[List], "extend": changes[List], "insert": changes[List], "pop": changes[List],
	"remove": changes[List], "clear": changes[List], "sort": changes[List], "reverse": changes[List],
}

// changes refuses a method that changes its value, as the sandbox of transformers does.
func changes[T any](c *calling, _ T) any {
	c.fail("a template cannot change values: make a new one with +, or keep it in a namespace")
	return nil
}
