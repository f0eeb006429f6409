package study

import (
	"strconv"
	"strings"
	"testing"
)

// BenchmarkLoad loads a study of 1,000 cells.
func BenchmarkLoad(b *testing.B) {
	in(b, strings.Replace(small, "[0, 1]", "["+strings.TrimSuffix(numbersTo(250), ",")+"]", 1))
	for b.Loop() {
		s, err := Load("small.toml")
		if err != nil || len(s.Cells) != 1000 {
			b.Fatalf("%v", err)
		}
	}
}

func numbersTo(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strconv.Itoa(i) + ",")
	}
	return b.String()
}
