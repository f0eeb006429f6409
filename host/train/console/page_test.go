package console

import (
	"bytes"
	"strings"
	"testing"
)

// TestPage: in its place on a terminal, cut to its lines, and elsewhere when it changes.
func TestPage(t *testing.T) {
	var out bytes.Buffer
	show := func(p *Page, texts ...string) string {
		t.Helper()
		out.Reset()
		for _, text := range texts {
			if err := p.Show(text); err != nil {
				t.Fatal(err)
			}
		}
		return out.String()
	}
	if got, want := show(NewPage(&out), "a\nb\n", "a\nb\n", "a\nc\n"), "a\nb\n\na\nc\n"; got != want {
		t.Errorf("into a file: %q, want %q", got, want)
	}
	terminal := &Page{out: &out, width: func() int { return 20 }, height: func() int { return 5 }}
	if got, want := show(terminal, "a\nb\n", "a\n"), "\r\x1b[Ja\nb\n\r\x1b[2A\x1b[Ja\n"; got != want {
		t.Errorf("on a terminal: %q, want %q", got, want)
	}
	if got, want := show(terminal, strings.Repeat("x", 30)+"\n"), "\r\x1b[1A\x1b[J"+strings.Repeat("x", 19)+"\n"; got != want {
		t.Errorf("a long line: %q, want %q", got, want)
	}
	if got, want := show(terminal, "1\n2\n3\n4\n5\n", "x\n"), "\r\x1b[1A\x1b[J1\n2\n… and 3 more\n\r\x1b[3A\x1b[Jx\n"; got != want {
		t.Errorf("on a small terminal: %q, want %q", got, want)
	}
}
