package bench

import (
	"math"
	"testing"
	"unicode/utf8"
)

// FuzzOutput: the output of any program gives a time for a step, or a short error.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("noise\n{\"seconds\": 0.5, \"first_step_unix\": 1e10}\n\n"))
	f.Add([]byte(`{"seconds": 1e999}`))
	f.Add([]byte("{\"seconds\": 1}\nmore"))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, output []byte) {
		s, err := parseOutput(output)
		switch {
		case err != nil:
			if text := err.Error(); len(text) > 2000 || !utf8.ValidString(text) {
				t.Fatalf("an error of %d bytes: %.100q", len(text), text)
			}
		case !(s.Seconds > 0) || math.IsInf(s.Seconds, 0):
			t.Fatalf("a step takes %v s", s.Seconds)
		}
	})
}
