package jinja

import "slices"

// folded is what values are compared by: strings in small letters unless case counts.
func folded(value any, caseSensitive bool) any {
	if s, ok := value.(string); ok && !caseSensitive {
		return lower(s)
	}
	return value
}

// order puts a copy of a list into the order of what key gives for the elements.
func (c *calling) order(list List, reverse, caseSensitive bool, key func(any) any) List {
	c.m.make(c.line, 16*len(list))
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b any) int {
		c.m.step(c.line)
		a, b = folded(key(a), caseSensitive), folded(key(b), caseSensitive)
		if reverse {
			a, b = b, a
		}
		switch {
		case less(c.line, a, b):
			return -1
		case less(c.line, b, a):
			return 1
		}
		return 0
	})
	return list
}

// sorted is the filter sort.
func sorted(c *calling, value any) any {
	args := c.bind(0, "reverse", "case_sensitive", "attribute")
	key := func(v any) any { return v }
	if args[2] != (absent{}) && args[2] != nil {
		path := c.text(args[2])
		key = func(v any) any { return c.attributeOf(v, path) }
	}
	return c.order(c.m.elements(c.line, value), truthOf(args[0]), truthOf(args[1]), key)
}

// dictSorted is the filter dictsort: the pairs of a mapping by key, or by value.
func dictSorted(c *calling, value any) any {
	args := c.bind(0, "case_sensitive", "by", "reverse")
	d, ok := value.(*Dict)
	if !ok {
		c.fail("the input is %s, want a mapping", typeName(value))
	}
	at := 0
	if by := c.str(args[1], "key"); by == "value" {
		at = 1
	} else if by != "key" {
		c.fail("by %q, want key or value", by)
	}
	c.m.make(c.line, 64*len(d.keys))
	return c.order(d.items(), truthOf(args[2]), truthOf(args[0]), func(v any) any { return v.(List)[at] })
}

// unique keeps the first of equal elements.
func unique(c *calling, value any) any {
	args := c.bind(0, "case_sensitive", "attribute")
	out, seen := List{}, List{}
	for _, element := range c.m.elements(c.line, value) {
		key := element
		if args[1] != (absent{}) && args[1] != nil {
			key = c.attributeOf(element, c.text(args[1]))
		}
		key = folded(key, truthOf(args[0]))
		if !slices.ContainsFunc(seen, func(other any) bool { return c.m.equal(c.line, key, other, 0) }) {
			out, seen = append(out, element), append(seen, key)
		}
	}
	return out
}

// extreme is the filter min or max.
func (c *calling) extreme(value any, largest bool) any {
	args := c.bind(0, "case_sensitive")
	list := c.m.elements(c.line, value)
	if len(list) == 0 {
		return &undefined{"the " + c.what + " of an empty list"}
	}
	found := list[0]
	for _, element := range list[1:] {
		c.m.step(c.line)
		a, b := folded(element, truthOf(args[0])), folded(found, truthOf(args[0]))
		if largest && less(c.line, b, a) || !largest && less(c.line, a, b) {
			found = element
		}
	}
	return found
}
