package jinja_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/data/chat/jinja"
)

// messages are n messages of a conversation that begins with the system.
func messages(n int) jinja.List {
	list := make(jinja.List, n)
	for i := range list {
		d := &jinja.Dict{}
		d.Set("role", []string{"assistant", "user"}[i%2])
		if i == 0 {
			d.Set("role", "system")
		}
		d.Set("content", strings.Repeat("x", i%3)+"é ")
		list[i] = d
	}
	return list
}

// every asks for all prefixes of at least one element, with and without the flag.
func every(n int) []jinja.Prefix {
	var list []jinja.Prefix
	for i := 1; i <= n; i++ {
		list = append(list, jinja.Prefix{Elements: i}, jinja.Prefix{Elements: i, Flag: true})
	}
	return list
}

// What templates do with messages that has one text however many follow, or another text for the last.
var follows = map[string]string{
	"plain": `{{ bos }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}{% if prompt %}>{% endif %}`,
	"last":  `{% for m in messages %}{{ m.content }}{{ ';' if not loop.last }}{% if loop.last and prompt %}>{% endif %}{% endfor %}.`,
	"without the first": `{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set messages = messages[1:] %}{% else %}{% set s = '' %}{% endif %}` +
		`{% for m in messages %}{{ loop.index }}{{ s if loop.first }}{{ m.content }}{% else %}none{% endfor %}{{ messages | length }}{{ messages[-1].role }}`,
	"in the loop's head": `{% for m in messages[1:] %}{{ m.content }}{% endfor %}{{ prompt }}`,
	"the next":           `{% for m in messages %}{{ loop.nextitem.role }}{% if not loop.last %}{{ messages[loop.index0 + 1].role }}{% endif %}{{ loop.previtem.role }}{% endfor %}`,
	"in a condition":     `a{% if true %}b{% if true %}{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.role }}{% endfor %}c{{ prompt }}{% endif %}d{% endif %}e`,
	"variables": `{% set n = namespace(i=0, last='') %}{% set x = 0 %}{% macro f(a) %}[{{ a }}{{ x }}{{ n.i }}]{% endmacro %}{% for m in messages %}{% set n.i = n.i + 1 %}{% set n.last = m.role %}{{ f(m.role) }}{% endfor %}` +
		`{% set x = n.i %}{% set n.i = 100 %}{% set n.more = 7 %}{{ f('end') }}{{ n.more }}{% set y %}{{ n.last }}{% endset %}{{ y }}{% macro f(a) %}other{% endmacro %}{{ f(1) }}{% if prompt %}{% set bos = 'changed' %}{% endif %}{{ bos }}`,
	"a second loop": `{% for m in messages %}{{ m.role }}{% endfor %}{% for m in messages %}{{ loop.revindex }}{% endfor %}{{ messages[0].role }}`,
	"is defined":    `{% if not prompt is defined %}{% set prompt = false %}{% endif %}{% if messages is defined %}{% for m in messages %}{{ m.role }}{% endfor %}{{ prompt }}{% endif %}`,
	"refuses":       `{% for m in messages %}{% if loop.last and loop.index > 3 %}{{ raise_exception('too many') }}{% endif %}{{ m.role }}{% endfor %}`,
	"refuses later": `{% for m in messages %}{% if loop.index > 3 %}{{ raise_exception('too many') }}{% endif %}{{ m.role }}{% endfor %}`,
}

// And what cannot be told before the end is known.
var depends = map[string]string{
	"number":            `{{ messages | length }}{% for m in messages %}{{ m.role }}{% endfor %}`,
	"number in a loop":  `{% for m in messages %}{{ loop.length }}{% endfor %}`,
	"from behind":       `{% for m in messages %}{{ loop.revindex0 }}{% endfor %}`,
	"the last":          `{{ messages[-1].role }}{% for m in messages %}{% endfor %}`,
	"far ahead":         `{% for m in messages %}{{ messages[loop.index0 + 2] is mapping }}{% endfor %}`,
	"backwards":         `{% for m in messages[::-1] %}{{ m.role }}{% endfor %}`,
	"but the last":      `{% for m in messages[:-1] %}{{ m.role }}{% endfor %}`,
	"some":              `{% for m in messages if m.role == 'user' %}{{ m.role }}{% endfor %}`,
	"loop in a loop":    `{% for m in messages %}{% for k in messages %}{{ k.role }}{% endfor %}{% endfor %}`,
	"within another":    `{% for i in range(2) %}{% for k in messages %}{{ k.role }}{% endfor %}{% endfor %}`,
	"captured":          `{% set x %}{% for k in messages %}{{ k.role }}{% endfor %}{% endset %}{{ x }}`,
	"in a macro":        `{% macro f() %}{% for k in messages %}{{ k.role }}{% endfor %}{% endmacro %}{{ f() }}`,
	"argument":          `{% macro f(l) %}{% for k in l %}{{ k.role }}{% endfor %}{% endmacro %}{{ f(messages) }}`,
	"in a namespace":    `{% set n = namespace(l=[]) %}{% set n.l = messages %}{% for k in n.l %}{{ k.role }}{% endfor %}`,
	"prompt before":     `{{ prompt }}{% for m in messages %}{{ m.role }}{% endfor %}`,
	"prompt in between": `{% for m in messages %}{{ m.role }}{{ prompt }}{% endfor %}`,
	"left":              `{% for m in messages %}{{ m.role }}{% if m.role == 'assistant' %}{% break %}{% endif %}{% endfor %}`,
	"no loop":           `{{ bos }}`,
	"loop kept":         `{% set n = namespace(l=0) %}{% for m in messages %}{{ n.l.length if n.l }}{% set n.l = loop %}{% endfor %}`,
	"compared":          `{% if messages == [] %}x{% endif %}{% for m in messages %}{{ m.role }}{% endfor %}`,
	"as JSON":           `{{ messages | tojson }}{% for m in messages %}{{ m.role }}{% endfor %}`,
}

// TestRenderPrefixes: the texts are those that each prefix gives when it is rendered by itself.
func TestRenderPrefixes(t *testing.T) {
	now := time.Unix(0, 0)
	for _, test := range []struct {
		templates map[string]string
		follows   bool
	}{{follows, true}, {depends, false}} {
		for name, source := range test.templates {
			tmpl, err := jinja.Parse(name, source)
			if err != nil {
				t.Fatal(err)
			}
			all := messages(6)
			wanted := every(6)
			got, err := tmpl.RenderPrefixes(map[string]any{"messages": all, "bos": "<s>"}, "messages", "prompt", wanted, now, jinja.Limits{})
			if depends := errors.Is(err, jinja.ErrDepends); depends == test.follows {
				t.Errorf("%s: error %v", name, err)
			}
			for i, p := range wanted {
				want, wantErr := tmpl.Render(map[string]any{"messages": all[:p.Elements], "bos": "<s>", "prompt": p.Flag}, now, jinja.Limits{})
				if i >= len(got.Endings) {
					if test.follows && (wantErr == nil || err == nil || err.Error() != wantErr.Error()) {
						t.Errorf("%s, %d elements: error %v, want %v", name, p.Elements, err, wantErr)
					}
					break
				}
				if text := got.Common[:got.Endings[i].Common] + got.Endings[i].Rest; wantErr != nil || text != want.Text {
					t.Errorf("%s, %d elements, %v:\n%q, want\n%q, %v", name, p.Elements, p.Flag, text, want.Text, wantErr)
				}
				last, ok := want.Printed[all[p.Elements-1].(*jinja.Dict)]
				if end := got.Endings[i]; end.HasLast != ok || ok && (end.Common+end.Last.Start != last.Start || end.Common+end.Last.End != last.End) {
					t.Errorf("%s, %d elements, %v: the last is %v behind %d, %v, want %v, %v", name, p.Elements, p.Flag, end.Last, end.Common, end.HasLast, last, ok)
				}
			}
		}
	}
}

// TestPrefixesAreLinear: twice the elements take twice the steps, and a bound on the steps of all prefixes holds.
func TestPrefixesAreLinear(t *testing.T) {
	render := func(source string, n, work int) error {
		tmpl, err := jinja.Parse("", source)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tmpl.RenderPrefixes(map[string]any{"messages": messages(n), "bos": ""}, "messages", "prompt", every(n), time.Unix(0, 0), jinja.Limits{Work: work})
		return err
	}
	for _, n := range []int{1000, 10000} {
		if err := render(follows["last"], n, 50*n); err != nil {
			t.Errorf("%d elements in %d steps: %v", n, 50*n, err)
		}
	}
	long := `{% for m in messages %}{% endfor %}{% for m in messages %}{{ 'x' * 1000 }}{% endfor %}`
	if err := render(long, 400, 1e9); !errors.Is(err, jinja.ErrDepends) {
		t.Errorf("800 prefixes of up to 400 kB each: error %v, want that they are rendered one after the other", err)
	}
	if err := render(follows["a second loop"], 1000, 50*1000); !errors.Is(err, jinja.ErrWork) {
		t.Errorf("a second loop over 1000 prefixes: error %v, want one about the work", err)
	}
}

// TestContext: a rendering stops when its context does.
func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tmpl, err := jinja.Parse("endless", `{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(nil, time.Time{}, jinja.Limits{Context: ctx}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
