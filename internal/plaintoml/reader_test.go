package plaintoml_test

import (
	"testing"

	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// TestReader checks that values are set, that absent keys get their defaults, and that all problems
// are reported with their positions. A key that is probably misspelled must not be reported as
// missing, too.
func TestReader(t *testing.T) {
	doc, err := plaintoml.Parse("a.toml",
		[]byte("name = \"x\"\nsizes = 3\nother = 1\nlist = 4\n[part]\nnumbers = [1, 0]\n[[elements]]\n"))
	if err != nil {
		t.Fatal(err)
	}
	var name, word, needed string
	var size, count int
	var numbers []int
	var part, list map[string]any
	var elements []map[string]any
	r := plaintoml.NewReader(doc)
	r.Read("", doc.Values(), schema.Key{Name: "name", To: &name}, schema.Key{Name: "size", To: &size},
		schema.Key{Name: "count", To: &count, Default: 7},
		schema.Key{Name: "word", To: &word, Optional: "none"},
		schema.Key{Name: "needed", To: &needed, Doc: "a text"}, schema.Key{Name: "list", To: &list},
		schema.Key{Name: "part", To: &part}, schema.Key{Name: "elements", To: &elements})
	r.Read("part", part, schema.Key{Name: "numbers", To: &numbers, Is: schema.From(1, 9)})
	if name != "x" || count != 7 || len(elements) != 1 || !r.Given("name") || r.Given("count") ||
		r.Good("size") || r.Good("part.numbers") {
		t.Errorf("name %q, count %d, elements %v", name, count, elements)
	}
	const want = `a.toml:1: needed: missing; want a string: a text
a.toml:2: sizes: unknown key; did you mean size?
a.toml:3: other: unknown key; known here: name, size, count, word, needed, list, part, elements
a.toml:4: list: found the integer 4; want a table [list]
a.toml:6: part.numbers: found an array with the integer 0; want an array of integers from 1 to 9`
	if err := r.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
