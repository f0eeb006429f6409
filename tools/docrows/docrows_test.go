package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// files writes a tree of source files.
func files(t *testing.T, contents map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range contents {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const source = `// Package cut cuts.
//
// It has more to say.
package cut

// Knife is a tool. It has a long blade which is not described here in all detail.
type Knife struct{}

// Sharpen makes the knife
// sharp.
func (Knife) Sharpen() {}

// New returns a knife.
func New() Knife { return Knife{} }

// This comment is a single sentence that is much longer than the answer may be and so has none
func Long() {}

func Silent() {}

// hidden is not exported.
func hidden() {}
`

// TestWrite checks that there are questions about exported symbols with a short enough comment, in
// order, but not about commands, tests, internal and vendored packages.
func TestWrite(t *testing.T) {
	root := files(t, map[string]string{
		"a/cut/cut.go": source, "a/cut/cut_test.go": "package cut\n\n// T is tested.\nfunc T() {}\n",
		"a/cut/tool.go": "package main\n\n// M is not.\nfunc M() {}\n",
		"cmd/x/x.go":    source, "a/internal/y/y.go": source, "vendor/z/z.go": source,
		"main/main.go": "// Main runs.\npackage main\n", "empty/doc.txt": "",
	})
	var out bytes.Buffer
	n, err := write(&out, options{root: root, longest: 40})
	if err != nil {
		t.Fatal(err)
	}
	want := `a/cut#a/cut: What is the package a/cut? Package cut cuts.
a/cut#cut.Knife: What is the type cut.Knife? Knife is a tool.
a/cut#cut.New: What does the function cut.New do? New returns a knife.
a/cut#cut.Knife.Sharpen: What does the method cut.Knife.Sharpen do? Sharpen makes the knife sharp.
`
	var got strings.Builder
	decoder := json.NewDecoder(&out)
	for decoder.More() {
		var r struct {
			ID       string
			Messages []struct{ Role, Content string }
		}
		if err := decoder.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if len(r.Messages) != 2 || r.Messages[0].Role != "user" || r.Messages[1].Role != "assistant" {
			t.Fatalf("the turns are %v", r.Messages)
		}
		fmt.Fprintf(&got, "%s: %s %s\n", r.ID, r.Messages[0].Content, r.Messages[1].Content)
		if utf8.RuneCountInString(r.Messages[1].Content) > 40 {
			t.Errorf("%s has a long answer", r.ID)
		}
	}
	if got.String() != want || n != 4 {
		t.Errorf("%d conversations:\n%swant:\n%s", n, got.String(), want)
	}
}

// TestBrokenSource checks that the error for invalid Go code names the file.
func TestBrokenSource(t *testing.T) {
	root := files(t, map[string]string{"a/a.go": "pakage a\n"})
	if _, err := write(&bytes.Buffer{}, options{root: root, longest: 40}); err == nil ||
		!strings.Contains(err.Error(), "a.go") {
		t.Errorf("the error is %v", err)
	}
}
