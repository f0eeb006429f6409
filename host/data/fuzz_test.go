package data

import (
	"strconv"
	"strings"
	"testing"
)

// FuzzInclude: a malformed pattern is refused, however it is malformed, and another one
// matches a file by its name alone unless it has a slash.
func FuzzInclude(f *testing.F) {
	f.Add("*.go", "a/b.go")
	f.Add("a/[^x]?\\*", "a/yz*")
	f.Add("a/[", "a/b")
	f.Add("**/x/**/*", "x/a/b")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		found, err := newFinder(&PrepareOptions{Include: []string{pattern}, Out: "out"})
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(pattern)) {
				t.Fatalf("no pattern in %v", err)
			}
			return
		}
		matched := found.matches(name, name)
		if !strings.Contains(pattern, "/") && matched != found.matches(name, "deep/"+name) {
			t.Fatalf("%q matches %q: %v, in another folder %v", pattern, name, matched, !matched)
		}
	})
}
