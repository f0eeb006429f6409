package data

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// scanText runs the scanner in chunks of the given size and returns the texts
// of the documents it finds.
func scanText(t *testing.T, text, separator string, chunk int) ([]string, Reason) {
	t.Helper()
	s := &scanner{separator: separatorForm(separator)}
	if err := s.run(strings.NewReader(text), chunk); err != nil {
		t.Fatal(err)
	}
	var documents []string
	switch s.reason {
	case Empty:
		return nil, isText
	case isText:
		for _, d := range s.documents {
			documents = append(documents, text[d.start:d.start+d.length])
		}
	}
	return documents, s.reason
}

// scanSlowly is a simple reference implementation of the scanner.
func scanSlowly(text, separator string) ([]string, Reason) {
	switch {
	case strings.ContainsRune(text, 0):
		return nil, Binary
	case !utf8.ValidString(text):
		return nil, InvalidUTF8
	}
	text = strings.TrimPrefix(text, "\ufeff")
	pieces := []string{text}
	if separator != "" {
		lines := strings.ReplaceAll(regexp.QuoteMeta(separator), "\n", `\r?\n`)
		pieces = regexp.MustCompile(lines).Split(text, -1)
	}
	var documents []string
	for _, piece := range pieces {
		if strings.TrimSpace(piece) != "" {
			documents = append(documents, piece)
		}
	}
	return documents, isText
}

func TestScan(t *testing.T) {
	for _, text := range []string{
		"", " \n\t ", "one document", "a<|end|>b<|end|>c", "a<|end|>\n<|end|>b<|end|>", "<|end|><|end|>",
		"a<|en<|end|>b<|end",
		"Größe<|end|>模型<|end|>🙂🙂", strings.Repeat("x", 100) + "<|end|>" + strings.Repeat("é", 100),
		"\u2003<|end|>\u2003.",
		"\ufeffa\nb", "\ufeff", "\ufeff\n", "a\r\n\r\nb\n\nc\r\n\nd\n\r\ne\r\n\r\n\r\nf", "\r\n\r\n",
		"a\r\rb\r\n", "a\r\n---\r\nb\n---\nc---\n", "\n\r", "\r\r\n\n",
		"ends in half a character \xe6\xa8", "\xff starts badly", "a\x00b",
		"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
	} {
		for _, separator := range []string{"", "<|end|>", "\n", "xx", "é", "\n\n", "\r\n", "\n---\n",
			"---\n"} {
			want, wantReason := scanSlowly(text, separator)
			for _, chunk := range []int{1, 2, 3, 5, 8, 64, 4096} {
				got, reason := scanText(t, text, separator, chunk)
				if reason != wantReason {
					t.Errorf("%q, chunks of %d: reason %q, want %q", text, chunk, reason, wantReason)
				}
				if diff := cmp.Diff(want, got); reason == isText && diff != "" {
					t.Errorf("%q by %q, chunks of %d (-want +got):\n%s", text, separator, chunk, diff)
				}
			}
		}
	}
}

// FuzzScan compares the scanner with scanSlowly at any chunk size.
func FuzzScan(f *testing.F) {
	f.Add("a<|end|>b", "<|end|>", uint8(1))
	f.Add("aaaaaaa", "aa", uint8(2))
	f.Add("é é\xe6", "", uint8(3))
	f.Add("\ufeffa\r\n\r\nb\n\nc", "\n\n", uint8(1))
	f.Fuzz(func(t *testing.T, text, separator string, chunk uint8) {
		if !utf8.ValidString(separator) || strings.ContainsRune(separator, 0) {
			t.Skip("refused by Prepare")
		}
		want, wantReason := scanSlowly(text, separator)
		got, reason := scanText(t, text, separator, int(chunk)+1)
		// A file may be both binary and invalid; which is noticed first depends on the chunk.
		if (reason == isText) != (wantReason == isText) {
			t.Fatalf("reason %q, want %q", reason, wantReason)
		}
		if reason == isText && !cmp.Equal(want, got) {
			t.Fatal(cmp.Diff(want, got))
		}
	})
}

func BenchmarkScan(b *testing.B) {
	text := bytes.Repeat([]byte("some text that is long enough, größer als nötig\n"), 1<<18)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s := &scanner{separator: separatorForm("<|end|>")}
		if err := s.run(bytes.NewReader(text), 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}
