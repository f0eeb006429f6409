package jinja

// tests stand behind "is".
var tests = map[string]func(c *calling, value any) any{
	"defined":   func(_ *calling, v any) any { return !isUndefined(v) },
	"undefined": func(_ *calling, v any) any { return isUndefined(v) },
	"none":      func(_ *calling, v any) any { return v == nil },
	"true":      func(_ *calling, v any) any { return v == true },
	"false":     func(_ *calling, v any) any { return v == false },
	"boolean":   func(_ *calling, v any) any { return is[bool](v) },
	"integer":   func(_ *calling, v any) any { return is[int64](v) },
	"float":     func(_ *calling, v any) any { return is[float64](v) },
	"number":    func(_ *calling, v any) any { return is[bool](v) || is[int64](v) || is[float64](v) },
	"string":    func(_ *calling, v any) any { return is[string](v) },
	"mapping":   func(_ *calling, v any) any { return is[*Dict](v) },
	"sequence":  func(_ *calling, v any) any { return length(v) >= 0 },
	"iterable":  func(_ *calling, v any) any { return length(v) >= 0 },
	"callable":  func(_ *calling, v any) any { return is[*function](v) },
	"odd":       func(c *calling, v any) any { return c.remainder(v, 2) == 1 },
	"even":      func(c *calling, v any) any { return c.remainder(v, 2) == 0 },
	"divisibleby": func(c *calling, v any) any {
		return c.remainder(v, c.integer(c.bind(1, "num")[0], 0)) == 0
	},
	"in":          func(c *calling, v any) any { return c.m.contains(c.line, c.bind(1, "seq")[0], v) },
	"equalto":     compares("=="),
	"eq":          compares("=="),
	"==":          compares("=="),
	"ne":          compares("!="),
	"!=":          compares("!="),
	"lt":          compares("<"),
	"<":           compares("<"),
	"le":          compares("<="),
	"<=":          compares("<="),
	"gt":          compares(">"),
	">":           compares(">"),
	"greaterthan": compares(">"),
	"lessthan":    compares("<"),
	"ge":          compares(">="),
	">=":          compares(">="),
}

// test returns the test of this name. As in Jinja, one that there is not is an error only
// where it is used.
func (c *calling) test(name string) func(c *calling, value any) any {
	passes := tests[name]
	if passes == nil {
		fail(c.line, "the test %q is not supported: there are %s", name, known(tests))
	}
	return passes
}

func isUndefined(value any) bool { return is[*undefined](value) }

func is[T any](value any) bool {
	_, ok := value.(T)
	return ok
}

func compares(op string) func(c *calling, value any) any {
	return func(c *calling, value any) any { return c.m.holds(c.line, op, value, c.bind(1, "other")[0]) }
}

// remainder is that of a division, never negative for a positive divisor.
func (c *calling) remainder(value any, by int64) int64 {
	n, _, kind := asNumber(value)
	if kind != 'i' {
		c.fail("the input is %s, want an integer", typeName(value))
	}
	return integers(c.line, "%", n, by).(int64)
}
