package jinja_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/internal/testing/testfile"
)

// FuzzTemplate checks that any template and messages give a text or a [jinja.Error], and that the
// spans of generation blocks lie in the text, in order.
func FuzzTemplate(f *testing.F) {
	var golden struct {
		Variables json.RawMessage
		Cases     []struct{ Source string }
	}
	testfile.ReadJSON(f, "testdata/snippets.golden.json", &golden)
	for _, c := range golden.Cases {
		f.Add(c.Source, []byte(golden.Variables))
	}
	f.Add("{% generation %}{% for m in messages %}{{ m }}{% endfor %}{% endgeneration %}",
		[]byte(`{"messages": [1, {"a": null}]}`))
	f.Fuzz(func(t *testing.T, source string, data []byte) {
		vars := map[string]any{}
		if value, err := jinja.FromJSON(data); err == nil {
			vars["messages"] = value
			if _, ok := value.(*jinja.Dict); ok {
				vars = variables(t, data)
			}
		}
		tmpl, err := jinja.Parse("fuzz", source)
		if err == nil {
			var got jinja.Rendering
			if got, err = tmpl.Render(vars, noon, jinja.Limits{Steps: 100_000, Bytes: 1 << 20}); err == nil {
				at := 0
				for _, s := range got.Generated {
					if s.Start < at || s.End < s.Start || s.End > len(got.Text) {
						t.Fatalf("span %v behind %d in a text of %d bytes", s, at, len(got.Text))
					}
					at = s.Start
				}
				return
			}
		}
		var e *jinja.Error
		if !errors.As(err, &e) {
			t.Fatalf("%v is no Error", err)
		}
		if !e.Raised && strings.HasPrefix(e.Problem, "the interpreter failed") {
			t.Fatal(err)
		}
	})
}
