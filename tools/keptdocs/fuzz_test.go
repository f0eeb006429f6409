package keptdocs

import "testing"

// FuzzMarks: the places of results stand one after another within the document, whatever it
// holds, and are those of complete descriptions.
func FuzzMarks(f *testing.F) {
	for _, text := range []string{
		"",
		"<!-- kept {study = \"a\", table = 1} -->\nx\n<!-- /kept -->\n",
		"x <!-- kept {study = \"a\", table = 2, at = {b = \"c\"}, show = \"n\"} -->3<!-- /kept --> y",
		"<!-- kept {study = \"a\", table = 1, where = {b = [\"c\", \"d\"]}} -->\n<!-- /kept -->",
		"<!-- kept {study = \"a\", figure = 1} -->\nx\n<!-- /kept -->\n",
		"```\n<!-- kept {} -->\n```\n<!-- /kept -->",
		"<!-- kept {study = 1} --><!-- /kept --><!-- kept",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := marks(text)
		if err != nil && len(list) > 0 {
			t.Fatalf("%d marks beside the error %v", len(list), err)
		}
		last := 0
		for _, m := range list {
			if m.start < last || m.end < m.start || m.end > len(text) {
				t.Fatalf("a place from %d to %d after %d, in %d bytes", m.start, m.end, last, len(text))
			}
			if m.Study == "" || (m.Table < 1) == (m.Figure < 1) || m.alone == (m.Show != "") {
				t.Fatalf("incomplete: %+v", m)
			}
			last = m.end
		}
	})
}
