package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const code = `package p

import "errors"

func f(a, b int, list []int) (int, error) {
	if a < b && b != 3 {
		list[0] = a
		g(a + b)
		return 0, errors.New("small")
	}
	for range list {
		continue
	}
	x := [2]int{a}
	return x[1], nil
}
`

// TestMutants: every kind of change is found, as text that stands in the place of other text.
func TestMutants(t *testing.T) {
	name := filepath.Join(t.TempDir(), "p.go")
	if err := os.WriteFile(name, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := mutantsOf(name)
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	for _, m := range list {
		after := strings.Split(string(m.apply([]byte(code))), "\n")
		before := strings.Split(code, "\n")
		for i := range before {
			if before[i] != after[i] {
				changed = append(changed, strings.TrimSpace(after[i]))
			}
		}
	}
	for _, want := range []string{
		"if a <= b && b != 3 {", "if a < b || b != 3 {", "if a < b && b == 3 {", "if a < b && b != 4 {", "if a < b && b != (2) {", "if !(a < b && b != 3) {",
		"", "list[1] = a", "g(a - b)", `return 0, nil`, `return 1, errors.New("small")`, "return x[2], nil",
	} {
		if !slices.Contains(changed, want) {
			t.Errorf("no mutant has the line %q", want)
		}
	}
	for _, line := range changed {
		if strings.Contains(line, "[3]int") || strings.HasPrefix(line, "import") {
			t.Errorf("a type or import is changed: %s", line)
		}
	}
}

func TestKiller(t *testing.T) {
	for out, want := range map[string]string{
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\npanic: x":   "`TestA` of host/x",
		"panic: test timed out after 1s\n\trunning tests:\n\t\tTestB (1s)\n": "the time limit, in `TestB` of host/x",
		"panic: runtime error\n": "a panic of host/x",
		"FAIL\tx [build failed]": "tests that do not compile of host/x",
		"exit status 3":          "an early end of host/x",
	} {
		if got := killer("./host/x", out); got != want {
			t.Errorf("%q: %s, want %s", out, got, want)
		}
	}
}
