package plaintoml

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCutIndexes checks that brackets in quotes are part of a name, also after an escaped quote.
func TestCutIndexes(t *testing.T) {
	for _, c := range []struct {
		text, plain string
		indexes     map[int]int
	}{
		{`a[1].b[0].c=[2]`, `a.b.c=[2]`, map[int]int{0: 1, 1: 0}},
		{`a."b[3]"[2]=1`, `a."b[3]"=1`, map[int]int{1: 2}},
		{`"a\"[3]"[2].b=1`, `"a\"[3]".b=1`, map[int]int{0: 2}},
		{`'a\'[2].b=1`, `'a\'.b=1`, map[int]int{0: 2}},
	} {
		plain, indexes, err := cutIndexes(c.text)
		if err != nil || plain != c.plain || !cmp.Equal(indexes, c.indexes) {
			t.Errorf("%s: %s, %v, %v", c.text, plain, indexes, err)
		}
	}
}
