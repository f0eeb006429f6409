package data

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPreparedInPlace: what an earlier preparation has written into the folder of the texts is no text, and is reported.
func TestPreparedInPlace(t *testing.T) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"a.txt": "first", "b.txt": "second", "sub/dataset.json": "third", "tokenizer.json": "another time"})
	for _, input := range []string{dir, filepath.Join(dir, "**"), filepath.Join(dir, "*")} {
		for range 2 {
			m, d := prepare(t, PrepareOptions{Inputs: []string{input}, Out: dir, ShardTokens: 1})
			got := append(documentsOf(t, d.Train), documentsOf(t, d.Val)...)
			if slices.Sort(got); !slices.Equal(got, []string{"first", "second", "third"}) {
				t.Errorf("%s: documents %q", input, got)
			}
			if !slices.ContainsFunc(m.LeftOut, func(l LeftOut) bool {
				return l.Reason == Own && slices.Contains(l.Names, filepath.Join(dir, "tokenizer.json"))
			}) {
				t.Errorf("%s: left out are %v", input, m.LeftOut)
			}
		}
	}
}

// TestLinkedInputs: a file that is named by a link is the file that the link leads to. What
// is for validation is not trained on, and what was prepared before is no text, by whatever
// names they are reached.
func TestLinkedInputs(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{"real/a.txt": "first", "real/b.txt": "second", "real/c.txt": "third"})
	link := filepath.Join(root, "link")
	if err := os.Symlink(filepath.Join(root, "real"), link); err != nil {
		t.Skip("needs symbolic links: ", err)
	}
	toB := filepath.Join(root, "to-b.txt")
	if err := os.Symlink(filepath.Join(root, "real", "b.txt"), toB); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ inputs, val string }{
		"a folder by its link":          {link, filepath.Join(root, "real", "b.txt")},
		"validation below a link":       {filepath.Join(root, "real"), filepath.Join(link, "b.txt")},
		"validation by a link":          {filepath.Join(root, "real"), toB},
		"a pattern below a link":        {filepath.Join(link, "*.txt"), filepath.Join(root, "real", "b.txt")},
		"both by the names of the tree": {filepath.Join(root, "real"), filepath.Join(root, "real", "b.txt")},
	} {
		out := filepath.Join(link, "out")
		for range 2 { // the second time, there is a dataset below the input
			_, d := prepare(t, PrepareOptions{Inputs: []string{c.inputs}, ValInputs: []string{c.val}, Out: out})
			train, val := documentsOf(t, d.Train), documentsOf(t, d.Val)
			if slices.Sort(train); !slices.Equal(train, []string{"first", "third"}) || !slices.Equal(val, []string{"second"}) {
				t.Errorf("%s: trained on %q, validated on %q", name, train, val)
			}
		}
	}
}
