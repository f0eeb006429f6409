package jinja_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2024, 7, 26, 13, 4, 5, 0, time.UTC)

// variables returns the members of a JSON object as template variables.
func variables(t testing.TB, text []byte) map[string]any {
	t.Helper()
	value, err := jinja.FromJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]any{}
	d := value.(*jinja.Dict)
	for _, key := range d.Keys() {
		vars[key], _ = d.Get(key)
	}
	return vars
}

func render(source string, vars map[string]any) (jinja.Rendering, error) {
	tmpl, err := jinja.Parse("test", source)
	if err != nil {
		return jinja.Rendering{}, err
	}
	return tmpl.Render(vars, noon, jinja.Limits{})
}

// TestSnippets compares each snippet's text with that of Jinja2 (testdata/generate.py).
func TestSnippets(t *testing.T) {
	var golden struct {
		Variables json.RawMessage
		Cases     []struct{ Source, Rendered string }
	}
	testfile.ReadJSON(t, "testdata/snippets.golden.json", &golden)
	if len(golden.Cases) < 70 {
		t.Fatalf("only %d snippets", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		got, err := render(c.Source, variables(t, golden.Variables))
		if err != nil {
			t.Errorf("%s\n%v", c.Source, err)
			continue
		}
		if diff := cmp.Diff(c.Rendered, got.Text); diff != "" {
			t.Errorf("%s\nwant %q\ngot  %q", c.Source, c.Rendered, got.Text)
		}
	}
}

// TestMistakes checks that each mistake is an error that names its place and what is wrong.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"a\n{{ 1", `template test, line 2: a tag without }} at its end`},
		{"{% if x %}", `line 1: found the end of the template, want {% endif %}`},
		{"{% for x in y %}{% else %}", `want {% endfor %}`},
		{"{% endif %}", `the block "endif" is not supported`},
		{"{% include 'x' %}", `the block "include" is not supported, want for, if`},
		{"{# a", `a comment without #} at its end`},
		{"\n\n{{ 'a }}", `line 3: a string without ' at its end`},
		{`{{ '\ud800' }}`, `is not a character`},
		{`{{ '\N{BULLET}' }}`, `the escape \N is not supported`},
		{`{{ '\101' }}`, `the escape \1 is not supported`},
		{"{{ [1] | batch(2) }}", `the filter "batch" is not supported`},
		{"{{ 1 | tojson(sort_keys=true) }}", `tojson: unknown argument "sort_keys"`},
		{"{{ 1 | tojson(true) }}", `tojson: ensure_ascii is not supported`},
		{"{{ 1 | tojson(indent=[]) }}", `tojson: the argument is a list, want an integer`},
		{"{{ [1, 'a'] | sort }}", `cannot compare a string with an integer`},
		{"{{ {} | dictsort(by='size') }}", `dictsort: want a mapping, and by="key" or by="value"`},
		{"{{ [] | dictsort }}", `dictsort: want a mapping`},
		{"{{ '%s %s' % 'a' }}", `the text "%s %s" needs more than 1 value`},
		{"{{ '%s' % (1, 2) }}", `the text has no place for an integer`},
		{"{{ '%d' % 'a' }}", `the directive %d is not supported for a string`},
		{"{{ '%r' % 'a' }}", `the directive %r is not supported`},
		{"{{ '%y' % 1 }}", `the directive %y is not supported`},
		{"{{ '%99999s' % 1 }}", `the directive % is not supported`},
		{"{{ 2.0 ** 2 }}", `2 ** 2: only powers of integers`},
		{"{{ missing | int }}", `int: the input is missing, which is undefined`},
		{"{{ 3 ** 99 }}", `the result of 3 ** 99 overflows 64 bits`},
		{"{{ 0 ** -1 }}", `0 ** -1: only powers of integers are supported`},
		{"{{ 'a' + ('b' | safe) }}", `a string + a safe string`},
		{"{{ ('b' | safe) == 'b' }}", `a safe string cannot be compared with a string`},
		{"{{ ('b' | safe).strip() }}", `"strip" of a safe string, which is undefined cannot be called`},
		{"\n{% raw %}\n{% endraw", `line 2: {% raw %} without {% endraw %}`},
		{"{% with a %}", `found "%}", want "="`},
		{"{% with a = 1 %}", `want {% endwith %}`},
		{"{% filter upper %}", `want {% endfilter %}`},
		{"{% filter %}", `want the name of a filter`},
		{"{% for x in [1] %}{% filter upper %}{% break %}{% endfilter %}{% endfor %}",
			`break outside of a loop`},
		{"{% call f() %}{% endcall %}", `the block "call" is not supported`},
		{"{{ 1 ? 2 }}", `unexpected character '?'`},
		{"{{ (1] }}", `unmatched "]"`},
		{"{{ }}", `found "}}", want a value`},
		{"{{ a b }}", `found "b", want "}}"`},
		{"{% macro f(a) %}{{ varargs }}{% endmacro %}{{ f(1) }}",
			"varargs, which Jinja gives to macros, is not supported"},
		{"{{ x | nothing }}", `the filter "nothing" is not supported, want one of capitalize, count, d,`},
		{"{{ x is nothing }}", `the test "nothing" is not supported, want one of !=,`},
		{"{{ 99999999999999999999 }}", `overflows 64 bits`},
		{"{% break %}", `break outside of a loop`},
		{"{% for x in [1] %}{% macro a() %}{% break %}{% endmacro %}{% endfor %}",
			`break outside of a loop`},
		{"{% for x in [1] %}{% set a %}{% break %}{% endset %}{% endfor %}", `break outside of a loop`},
		{"{% macro a(x=1, y) %}{% endmacro %}", `parameter "y" has no default`},
		{"{% macro a() %}{% generation %}{% endgeneration %}{% endmacro %}",
			`a generation block within a macro`},
		{"{% set x %}{% generation %}{% endgeneration %}{% endset %}",
			`a generation block within a set block`},
		{"{{ f(a=1, 2) }}", `want a named argument`},
		{"{{ x[] }}", `an index is missing between [ and ]`},
		{"{{ " + strings.Repeat("(", 1000) + strings.Repeat(")", 1000) + "}}", "levels of nesting"},
		{strings.Repeat("{% if x %}", 1000), "levels of nesting"},
		{strings.Repeat("a", 1<<18+1), "the limit is 262144"},
		{"\xff", "not valid UTF-8"},
		{"\n{{ missing.role }}", `line 2: cannot read "role" of missing, which is undefined`},
		{"{{ missing['role'] }}", `cannot read "role" of missing`},
		{"{{ missing + 'x' }}", `missing, which is undefined + a string`},
		{"{{ 'x' + 1 }}", `a string + an integer: only two numbers, two strings or two lists can be added`},
		{"{{ 1 < 'x' }}", `cannot compare an integer with a string`},
		{"{{ 1 in 'x' }}", `the left operand of in is an integer, want a string`},
		{"{{ 1 // 0 }}", `division by zero`},
		{"{{ 9223372036854775807 + 1 }}", `overflows 64 bits`},
		{"{{ -9223372036854775807 - 2 }}", `overflows 64 bits`},
		{"{{ 9223372036854775807 * 2 }}", `overflows 64 bits`},
		{"{{ 'x'.nothing() }}", `"nothing" of a string, which is undefined cannot be called`},
		{"{{ [1].append(2) }}", `"append" of a list, which is undefined cannot be called`},
		{"{% set x = {} %}{% set x.y = 1 %}", `the attribute "y" of x cannot be set`},
		{"{% for a, b in [1] %}{% endfor %}", `an integer cannot be unpacked to 2 names`},
		{"{{ 'x'.replace('a') }}", `replace: the argument "new" is missing`},
		{"{{ 'x'.strip('a', 'b') }}", `strip: 2 arguments, want at most 1`},
		{"{{ 'x'.split(wrong=1) }}", `split: unknown argument "wrong"`},
		{"{{ 'x'.split('a', sep='b') }}", `split: the argument "sep" is given twice`},
		{"{{ 'x'.split('') }}", `split: the separator is empty`},
		{"{{ 'x'.replace(1, 2) }}", `replace: the argument is an integer, want a string`},
		{"{{ {1: 2} }}", `a key of a mapping must be a string`},
		{"{{ missing | tojson }}", `tojson: missing, which is undefined cannot be written as JSON`},
		{"{{ strftime_now('%Q') }}", `strftime_now: the directive %Q is not supported`},
		{"{{ range(1, 9, 0) }}", `range: the step is 0`},
		{"{{ [1] | map('nothing') | list }}", `line 1: the filter "nothing" is not supported`},
		{"{{ [1] | select('nothing') | list }}", `line 1: the test "nothing" is not supported`},
		{"{{ 'abc'[::0] }}", `a slice with step 0`},
		{"{{ namespace }}", `a function cannot be printed`},
	} {
		_, err := render(c.source, nil)
		var e *jinja.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.100s\nwant %s\ngot  %v", c.source, c.want, err)
		}
	}
}

// TestStopped checks that templates that compute or print without end are stopped.
func TestStopped(t *testing.T) {
	testlevel.Long(t, "templates run until they reach the limits")
	for _, c := range []struct{ source, want string }{
		{"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
			"too many steps"},
		{"{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% " +
			"endfor %}", "texts and lists are too large"},
		{"{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor " +
			"%}", "texts and lists are too large"},
		{"{{ 'a' * 99999999999 }}", "texts and lists are too large"},
		{"{{ range(999999) }}", "more than 100000 elements"},
		{"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls are nested more than 100 deep"},
		{"{% set ns = namespace(x=[]) %}{% for a in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ " +
			"ns.x }}", "values are nested"},
		{"{% set ns = namespace(x=[], y=[]) %}{% for a in range(999) %}{% set ns.x = [ns.x] %}{% set " +
			"ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}", "values are nested"},
		{"{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x | tojson }}",
			"a namespace cannot be written as JSON"},
		{"{% set ns = namespace(x=[1]) %}{% for a in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% " +
			"endfor %}{{ ns.x == ns.x }}", "too many steps"},
		{"{% set ns = namespace(x='ab') %}{% for a in range(20) %}{% set ns.x = ns.x.replace('', ns.x) " +
			"%}{% endfor %}", "texts and lists are too large"},
	} {
		_, err := render(c.source, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\nwant %s\ngot  %v", c.source, c.want, err)
		}
	}
}

// TestRaised checks that a template's own errors are distinguishable from mistakes in it.
func TestRaised(t *testing.T) {
	_, err := render("\n{{ raise_exception('roles must alternate') }}", nil)
	var e *jinja.Error
	if !errors.As(err, &e) || !e.Raised {
		t.Fatalf("%v is not marked as raised", err)
	}
	if want := `template test, line 2: the template raised "roles must alternate"`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

// TestGenerated checks the spans of the text that generation blocks print.
func TestGenerated(t *testing.T) {
	source := "{% for w in ['ü', 'b'] %}<{% generation %}{{ w }}!{% endgeneration %}>{% endfor %}"
	tmpl, err := jinja.Parse("test", source)
	if err != nil {
		t.Fatal(err)
	}
	if !tmpl.HasGeneration() {
		t.Error("the generation block is not noticed")
	}
	got, err := tmpl.Render(nil, noon, jinja.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := jinja.Rendering{Text: "<ü!><b!>",
		Generated: []jinja.Span{{Start: 1, End: 4}, {Start: 6, End: 8}}, Steps: 6,
		Printed: map[*jinja.Dict]jinja.Span{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPrinted checks the spans of the text that loops print for each mapping, except loops in
// macros and set blocks.
func TestPrinted(t *testing.T) {
	list := []any{}
	for _, role := range []string{"system", "user", "assistant"} {
		d := &jinja.Dict{}
		d.Set("role", role)
		list = append(list, d)
	}
	for source, want := range map[string]string{
		`{% for m in l %}{{ loop.index }};{% endfor %}`:                                                                         "1;|2;|3;",
		`{% for m in l[1:] %}{{ loop.index }};{% endfor %}`:                                                                     "none|1;|2;",
		`{% for m in l if m.role == 'user' %}<{{ loop.index }}>{% endfor %}`:                                                    "none|<1>|none",
		`{% for m in l %}{{ loop.index }}{% endfor %}{% for m in l %}{% if loop.last %}x{% endif %}{% endfor %}`:                "1|2|x",
		`{% for m in l %}{% for k in l %}{{ loop.index }}{% endfor %}{% if loop.first %}{% continue %}{% endif %};{% endfor %}`: "123|123;|123;",
		`{% for m in l %}{% if loop.last %}{% break %}{% endif %}{{ loop.index }}{% endfor %}`:                                  "1|2|",
		`{% set x %}{% for m in l %}{{ loop.index }}{% endfor %}{% endset %}{{ x }}`:                                            "none|none|none",
		`{% macro f() %}{% for m in l %}{{ loop.index }}{% endfor %}{% endmacro %}{{ f() }}`:                                    "none|none|none",
		`{% for i in range(3) %}{{ i }}{% endfor %}`:                                                                            "none|none|none",
	} {
		tmpl, err := jinja.Parse("test", source)
		if err != nil {
			t.Fatal(err)
		}
		r, err := tmpl.Render(map[string]any{"l": list}, noon, jinja.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range list {
			text := "none"
			if s, ok := r.Printed[m.(*jinja.Dict)]; ok {
				text = r.Text[s.Start:s.End]
			}
			got = append(got, text)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: %q, want %s", source, got, want)
		}
	}
}

// TestVariablesStay checks that a rendering does not change the variables of the next one.
func TestVariablesStay(t *testing.T) {
	vars := map[string]any{"x": "a"}
	for range 2 {
		got, err := render("{{ x }}{% set x = 'b' %}{{ x }}{% set range = 1 %}", vars)
		if err != nil || got.Text != "ab" {
			t.Errorf("%q, %v", got.Text, err)
		}
	}
}

// TestLargeNumbers checks that numbers beyond 64 bits can be read, that integers are printed whole,
// and that other uses are errors.
func TestLargeNumbers(t *testing.T) {
	const long = "-12345678901234567890"
	value, err := jinja.FromJSON([]byte("[" + long + ", 1e999, " + long + ", 18446744073709551615]"))
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"{{ x[0] }} {{ x[3:] | tojson }}":      long + " [18446744073709551615]",
		"{{ x[0] == x[2] }}{{ x[0] == x[3] }}": "TrueFalse",
		"{{ x[1] > 0 }}{{ x[0] in x[1:] }}":    "TrueTrue",
		"{{ x[0] + 1 }}":                       "an integer beyond 64 bits + an integer: only",
		"{{ x[1] }}":                           "+Inf cannot be printed",
	} {
		got, err := render(source, map[string]any{"x": value})
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && got.Text != want {
			t.Errorf("%s: got %q, %v, want %s", source, got.Text, err, want)
		}
	}
}

func TestFromJSONMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"a": 1`, "not valid JSON: it ends in the middle"},
		{`{"a": 1} 2`, "more text follows"},
		{`{"a": 1} x`, "(byte 10)"},
		{strings.Repeat("[", 200), "values are nested more than"},
		{"\"\xff\"", "invalid UTF-8"},
		{"", "not valid JSON: it is empty"},
		{`{"a": {"b": 1, "b": 1}}`, "a.b: duplicate key"},
	} {
		if value, err := jinja.FromJSON([]byte(c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want an error with %q", c.text, value, err, c.want)
		}
	}
}
