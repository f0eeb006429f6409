package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/lists"
)

var globals = map[string]any{
	"raise_exception": &function{"raise_exception", func(c *call) any {
		c.bind(1, "message")
		panic(&Error{Line: c.line, Problem: c.str(c.args[0]), Raised: true})
	}},
	"strftime_now": &function{"strftime_now", strftime},
	"range":        &function{"range", numbers},
	"namespace": &function{"namespace", func(c *call) any {
		ns := &namespace{}
		if len(c.positional) > 0 {
			c.fail("want named arguments only")
		}
		for i, name := range c.names {
			ns.Set(name, c.named[i])
		}
		return ns
	}},
}

// numbers implements range(stop) or range(start, stop, step).
func numbers(c *call) any {
	c.bind(1, "start", "stop", "step")
	start, stop, step := int64(0), c.integer(0, 0), int64(1)
	if c.has(1) {
		start, stop, step = stop, c.integer(1, 0), c.integer(2, 1)
	}
	if step == 0 {
		c.fail("the step is 0")
	}
	list := []any{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(list) == maxRange {
			c.fail("more than %d elements", maxRange)
		}
		c.make(16)
		list = append(list, i)
	}
	return list
}

var dateFormats = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'B': "January", 'b': "Jan", 'A': "Monday",
	'a': "Mon", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'Z': "MST",
	'z': "-0700",
}

func strftime(c *call) any {
	c.bind(1, "format")
	format := c.text(0)
	c.make(16 * len(format))
	var out strings.Builder
	for {
		before, directive, found := strings.Cut(format, "%")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		if directive == "" {
			c.fail("the format ends in %%")
		}
		layout, ok := dateFormats[directive[0]]
		switch {
		case ok:
			out.WriteString(c.now.Format(layout))
		case directive[0] == '%':
			out.WriteByte('%')
		default:
			c.fail("the directive %%%c is not supported", directive[0])
		}
		format = directive[1:]
	}
}

var tests = map[string]builtin{
	"defined":   {"", func(_ *call, v any) any { return !is[*undefined](v) }},
	"undefined": {"", func(_ *call, v any) any { return is[*undefined](v) }},
	"none":      {"", func(_ *call, v any) any { return v == nil }},
	"true":      {"", func(_ *call, v any) any { return v == true }},
	"false":     {"", func(_ *call, v any) any { return v == false }},
	"boolean":   {"", func(_ *call, v any) any { return is[bool](v) }},
	"integer":   {"", func(_ *call, v any) any { return is[int64](v) }},
	"float":     {"", func(_ *call, v any) any { return is[float64](v) }},
	"number":    {"", func(_ *call, v any) any { _, _, kind := asNumber(v); return kind != 0 }},
	"string":    {"", func(_ *call, v any) any { return is[string](v) || is[safe](v) }},
	"mapping":   {"", func(_ *call, v any) any { return is[*Dict](v) }},
	"sequence":  {"", func(_ *call, v any) any { return length(v) >= 0 }},
	"iterable":  {"", func(_ *call, v any) any { return length(v) >= 0 || is[*iterator](v) }},
	"callable":  {"", func(_ *call, v any) any { return is[*function](v) }},
	"odd":       {"", func(c *call, v any) any { return c.remainder(v, 2) == 1 }},
	"even":      {"", func(c *call, v any) any { return c.remainder(v, 2) == 0 }},
	"divisibleby": {"num", func(c *call, v any) any {
		return c.remainder(v, c.integer(0, 0)) == 0
	}},
}

func (c *call) remainder(value any, by int64) int64 {
	n, _, kind := asNumber(value)
	if kind != 'i' {
		c.fail("the input is %s, want an integer", typeName(value))
	}
	if by == 0 {
		c.fail("division by zero")
	}
	return c.integers("%", n, by)
}

// filters is set in init, because some filters refer to the table.
var filters map[string]builtin

func init() {
	for name, operator := range map[string]string{
		"in": "in", "==": "==", "eq": "==", "equalto": "==", "!=": "!=", "ne": "!=",
		"<": "<", "lt": "<", "lessthan": "<", "<=": "<=", "le": "<=",
		">": ">", "gt": ">", "greaterthan": ">", ">=": ">=", "ge": ">=",
	} {
		tests[name] = builtin{"other", func(c *call, v any) any {
			return compares[operator](c.machine, v, c.args[0])
		}}
	}
	filters = map[string]builtin{
		"trim":       onText(stringMethods["strip"]),
		"upper":      onText(stringMethods["upper"]),
		"lower":      onText(stringMethods["lower"]),
		"capitalize": onText(stringMethods["capitalize"]),
		"string":     {"", func(c *call, v any) any { return c.str(v) }},
		"safe":       {"", func(c *call, v any) any { return safe(c.str(v)) }},
		"length":     {"", lengthOf},
		"count":      {"", lengthOf},
		"tojson":     {"? ensure_ascii indent", toJSON},
		"dictsort":   {"? case_sensitive by reverse", dictSort},
		"sort":       {"? reverse case_sensitive attribute", sortFilter},
		"indent":     {"? width first blank", indent},
		"default":    {"? default_value boolean", defaultTo},
		"d":          {"? default_value boolean", defaultTo},
		"join":       {"? d attribute", join},
		"list":       {"", func(c *call, v any) any { return c.elements(v) }},
		"first":      {"", func(c *call, v any) any { return c.end(v, 0) }},
		"last":       {"", func(c *call, v any) any { return c.end(v, -1) }},
		"reverse":    {"", reverse},
		"replace": {"old new ? count", func(c *call, v any) any {
			return c.replace(c.str(v), c.str(c.args[0]), c.str(c.args[1]))
		}},
		"items":      {"", items},
		"int":        {"? default", toInteger},
		"map":        {"*", mapFilter},
		"select":     {"*", func(c *call, v any) any { return c.choose(v, false, true) }},
		"reject":     {"*", func(c *call, v any) any { return c.choose(v, false, false) }},
		"selectattr": {"*", func(c *call, v any) any { return c.choose(v, true, true) }},
		"rejectattr": {"*", func(c *call, v any) any { return c.choose(v, true, false) }},
	}
}

// onText turns a string method into a filter, which applies it to the printed value.
func onText(method builtin) builtin {
	return builtin{method.params, func(c *call, v any) any { return method.run(c, c.str(v)) }}
}

func lengthOf(c *call, value any) any {
	n := length(value)
	if n < 0 {
		c.fail("%s has no length", typeName(value))
	}
	return int64(n)
}

// defaultTo replaces an undefined value and, if the second argument is true, any false value.
func defaultTo(c *call, value any) any {
	switch {
	case !is[*undefined](value) && (truth(value) || !c.has(1) || !truth(c.args[1])):
		return value
	case c.has(0):
		return c.args[0]
	}
	return ""
}

func join(c *call, value any) any {
	list := c.elements(value)
	if c.has(1) {
		list = c.attributes(list, c.str(c.args[1]), nil)
	}
	parts := lists.Map(list, c.str)
	return c.joined(parts, c.text(0))
}

func (c *call) joined(parts []string, separator string) string {
	for _, part := range parts {
		c.make(len(part) + len(separator))
	}
	return strings.Join(parts, separator)
}

func (c *call) end(value any, at int64) any {
	if !is[string](value) {
		list := c.elements(value)
		if len(list) == 0 {
			return &undefined{"the " + c.name + " element of an empty list"}
		}
		value = list
	}
	return c.element(value, at)
}

func reverse(c *call, value any) any {
	if s, ok := value.(string); ok {
		c.make(5 * len(s))
		runes := []rune(s)
		slices.Reverse(runes)
		return string(runes)
	}
	again := is[*iterator](value) // in Jinja, the result is then a list
	list := slices.Clone(c.elements(value))
	c.make(16 * len(list))
	slices.Reverse(list)
	if again {
		return list
	}
	return &iterator{list}
}

func items(c *call, value any) any {
	switch v := value.(type) {
	case *Dict:
		return &iterator{c.items(v)}
	case *undefined:
		return &iterator{}
	}
	c.fail("the input is %s, want a mapping", typeName(value))
	return nil
}

// toInteger parses an integer, or returns the default, 0.
func toInteger(c *call, value any) any {
	if s, ok := value.(string); ok {
		s = strings.TrimFunc(s, isSpace)
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n
		}
		if x, err := strconv.ParseFloat(s, 64); err == nil {
			value = x
		}
	}
	switch i, x, kind := asNumber(value); {
	case is[*undefined](value):
		c.fail("the input is %s", typeName(value))
	case kind == 'i':
		return i
	case kind == 'f' && math.Abs(x) < 1<<63:
		return int64(x)
	}
	return c.integer(0, 0)
}

// indent puts white space before each line but the first and empty ones.
func indent(c *call, value any) any {
	space, lines := c.indentation(0, 4), splitLines(c.str(value)+"\n", false)
	for i, line := range lines {
		c.make(len(line) + len(space) + 32)
		if i == 0 && truth(c.arg(1)) || i > 0 && (line != "" || truth(c.arg(2))) {
			lines[i] = space + line
		}
	}
	return strings.Join(lines, "\n")
}

// attributes returns an attribute of each element. Unless nil, fallback replaces missing ones.
func (c *call) attributes(list []any, name string, fallback any) []any {
	c.make(16 * len(list))
	out := make([]any, len(list))
	for i, element := range list {
		out[i] = c.attributeOf(element, name)
		if is[*undefined](out[i]) && fallback != nil {
			out[i] = fallback
		}
	}
	return out
}

// attributeOf follows a path such as "function.name" or "0".
func (c *call) attributeOf(value any, path string) any {
	for part := range strings.SplitSeq(path, ".") {
		c.step(c.line)
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			value = c.element(value, n)
		} else {
			value = c.element(value, part)
		}
	}
	return value
}

// orEmpty returns the elements of a value, or nil if the value counts as false.
func (c *call) orEmpty(value any) []any {
	if !truth(value) {
		return nil
	}
	return c.elements(value)
}

// mapFilter applies a filter to every element, or replaces each element by one of its attributes.
func mapFilter(c *call, value any) any {
	list := c.orEmpty(value)
	if len(c.positional) == 0 {
		c.bind(0, "attribute", "default")
		if !c.has(0) {
			c.fail(`want the name of a filter, or attribute="NAME"`)
		}
		var otherwise any
		if c.has(1) {
			otherwise = c.args[1]
		}
		return &iterator{c.attributes(list, c.str(c.args[0]), otherwise)}
	}
	name := c.string(c.positional[0])
	defer c.enter()()
	c.make(16 * len(list))
	out := make([]any, len(list))
	for i, element := range list {
		c.step(c.line)
		inner := *c
		inner.positional = c.positional[1:]
		out[i] = inner.apply(filters, "filter", name, element)
	}
	return &iterator{out}
}

// choose returns the elements that pass a test or, if passes is false, those that fail it. If
// ofAttribute is set, it tests an attribute of each element. The default test is for truth.
func (c *call) choose(value any, ofAttribute, passes bool) any {
	args := c.positional
	path := ""
	if ofAttribute {
		if len(args) == 0 {
			c.fail("the name of an attribute is missing")
		}
		path, args = c.str(args[0]), args[1:]
	}
	out := []any{}
	for _, element := range c.orEmpty(value) {
		c.step(c.line)
		tested := element
		if ofAttribute {
			tested = c.attributeOf(element, path)
		}
		if len(args) > 0 {
			inner := *c
			inner.positional = args[1:]
			tested = inner.apply(tests, "test", c.string(args[0]), tested)
		}
		if truth(tested) == passes {
			out = append(out, element)
		}
	}
	return &iterator{out}
}

func method(of any, name string) any {
	var table map[string]builtin
	switch of.(type) {
	case string:
		table = stringMethods
	case *Dict:
		table = dictMethods
	}
	if _, ok := table[name]; !ok {
		return nil
	}
	return &function{name, func(c *call) any { return c.apply(table, "method", name, of) }}
}

// onString returns a string method; [onText] turns it into a filter.
func onString(params string, run func(c *call, s string) any) builtin {
	return builtin{params, func(c *call, v any) any { return run(c, v.(string)) }}
}

var stringMethods = map[string]builtin{
	"strip": onString("? chars", func(c *call, s string) any {
		return strings.TrimLeftFunc(strings.TrimRightFunc(s, c.cutset()), c.cutset())
	}),
	"lstrip": onString("? chars", func(c *call, s string) any {
		return strings.TrimLeftFunc(s, c.cutset())
	}),
	"rstrip": onString("? chars", func(c *call, s string) any {
		return strings.TrimRightFunc(s, c.cutset())
	}),
	"split":  onString("? sep maxsplit", func(c *call, s string) any { return c.split(s, false) }),
	"rsplit": onString("? sep maxsplit", func(c *call, s string) any { return c.split(s, true) }),
	"splitlines": onString("? keepends", func(c *call, s string) any {
		c.make(32 * len(s))
		return lists.Map(splitLines(s, truth(c.arg(0))), func(line string) any { return line })
	}),
	"startswith": onString("part", func(c *call, s string) any {
		return c.affix(s, strings.HasPrefix)
	}),
	"endswith": onString("part", func(c *call, s string) any {
		return c.affix(s, strings.HasSuffix)
	}),
	"removeprefix": onString("prefix", func(c *call, s string) any {
		return strings.TrimPrefix(s, c.text(0))
	}),
	"removesuffix": onString("suffix", func(c *call, s string) any {
		return strings.TrimSuffix(s, c.text(0))
	}),
	"upper":      changed(upper),
	"lower":      changed(lower),
	"capitalize": changed(capitalize),
	"title":      changed(title),
	"replace": onString("old new ? count", func(c *call, s string) any {
		return c.replace(s, c.text(0), c.text(1))
	}),
	"join": onString("list", func(c *call, s string) any {
		var parts []string
		for i, element := range c.elements(c.args[0]) {
			if !is[string](element) {
				c.fail("element %d is %s, want a string", i, typeName(element))
			}
			parts = append(parts, element.(string))
		}
		return c.joined(parts, s)
	}),
	"find": onString("sub", func(c *call, s string) any {
		before, _, found := strings.Cut(s, c.text(0))
		if !found {
			return int64(-1)
		}
		return int64(utf8.RuneCountInString(before))
	}),
	"count": onString("sub", func(c *call, s string) any {
		return int64(strings.Count(s, c.text(0)))
	}),
}

// changed returns the string method for a transformation, which may triple the length.
func changed(change func(string) string) builtin {
	return onString("", func(c *call, s string) any {
		c.make(3 * len(s))
		return change(s)
	})
}

// cutset returns a function that selects the characters to strip: the argument's, or white space.
func (c *call) cutset() func(r rune) bool {
	if set, ok := c.args[0].(string); ok {
		return func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	return isSpace
}

func (c *call) split(s string, fromRight bool) any {
	sep, ok := c.args[0].(string)
	if ok && sep == "" {
		c.fail("the separator is empty")
	}
	c.make(32 * len(s))
	times := min(c.integer(1, -1), int64(len(s)))
	parts := split(s, sep, int(times), fromRight)
	c.make(len(s) + 16*len(parts))
	return lists.Map(parts, func(part string) any { return part })
}

// affix calls matches for the argument or, if that is a tuple, for each of its strings, and reports
// whether any call returns true.
func (c *call) affix(s string, matches func(s, part string) bool) any {
	candidates, ok := c.args[0].(tuple)
	if !ok {
		candidates = c.args
	}
	return slices.ContainsFunc(candidates, func(part any) bool { return matches(s, c.string(part)) })
}

// replace replaces old as often as the third argument says; everywhere if it is omitted.
func (c *call) replace(s, old, by string) string {
	n := strings.Count(s, old)
	if count := c.integer(2, -1); count >= 0 {
		n = int(min(count, int64(n)))
	}
	c.make(len(s))
	for range n {
		c.make(len(by))
	}
	return strings.Replace(s, old, by, n)
}

var dictMethods = map[string]builtin{
	"get": {"key ? default", func(c *call, d any) any {
		key, ok := c.args[0].(string)
		value, found := d.(*Dict).Get(key)
		switch {
		case ok && found:
			return value
		case c.has(1):
			return c.args[1]
		}
		return nil
	}},
	"items": {"", func(c *call, d any) any { return c.items(d.(*Dict)) }},
	"keys":  {"", func(c *call, d any) any { return c.elements(d) }},
	"values": {"", func(c *call, d any) any {
		list := c.elements(d)
		for i, key := range d.(*Dict).keys {
			list[i] = d.(*Dict).values[key]
		}
		return list
	}},
}
