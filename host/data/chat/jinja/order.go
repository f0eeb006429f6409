package jinja

import "slices"

// sorted returns the elements in the order of their keys; reverse keeps the order of equal ones.
// Unless the case of letters counts, texts are compared in lower case.
func (c *call) sorted(list []any, matchCase, reverse bool, key func(element any) any) any {
	keys, order := make([]any, len(list)), make([]int, len(list))
	c.make(32 * len(list))
	for i, element := range list {
		order[i], keys[i] = i, key(element)
		if s, ok := keys[i].(string); ok && !matchCase {
			c.make(3 * len(s))
			keys[i] = lower(s)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		c.step(c.line)
		if reverse {
			a, b = b, a
		}
		switch {
		case c.less(keys[a], keys[b]):
			return -1
		case c.less(keys[b], keys[a]):
			return 1
		}
		return 0
	})
	for i, at := range order {
		keys[i] = list[at]
	}
	return keys
}

func sortFilter(c *call, value any) any {
	return c.sorted(c.elements(value), truth(c.arg(1)), truth(c.arg(0)), func(element any) any {
		if c.arg(2) == nil {
			return element
		}
		return c.attributeOf(element, c.str(c.arg(2)))
	})
}

// dictSort returns the pairs of a mapping in the order of their keys or values.
func dictSort(c *call, value any) any {
	d, ok := value.(*Dict)
	at, known := map[any]int{nil: 0, "key": 0, "value": 1}[c.arg(1)]
	if !ok || !known {
		c.fail(`want a mapping, and by="key" or by="value"`)
	}
	return c.sorted(c.items(d), truth(c.arg(0)), truth(c.arg(2)), func(pair any) any {
		return pair.(tuple)[at]
	})
}
