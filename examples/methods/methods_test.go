// Package methods_test writes and checks docs/reference/methods.md, the table of published methods
// and of the code that each needs.
package methods_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

var update = flag.Bool("update", false, "write docs/reference/methods.md")

const (
	root = "../.."
	page = root + "/docs/reference/methods.md"
)

// method is a row of the table.
type method struct {
	Name, Paper, Code, Uses, Note string
	Why                           string // why it cannot be written
}

// TestPage checks that docs/reference/methods.md agrees with methods.toml and the code.
func TestPage(t *testing.T) {
	var list struct{ Quantizer, Training, Optimizer, Method []method }
	meta, err := toml.DecodeFile("methods.toml", &list)
	if err != nil {
		t.Fatal(err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		t.Fatalf("methods.toml: unknown keys %v", unknown)
	}
	var b bytes.Buffer
	b.WriteString(head)
	for _, part := range []struct {
		title string
		list  []method
	}{{"Quantizers", list.Quantizer}, {"Fully quantized training", list.Training},
		{"Optimizers", list.Optimizer}, {"Methods of the host", list.Method}} {
		fmt.Fprintf(&b, "\n## %s\n\n| method | source | lines | code |\n|---|---|---|---|\n", part.title)
		for _, m := range part.list {
			row, err := m.row()
			if err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
			b.WriteString(row)
		}
	}
	if *update {
		if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, b.Bytes()) {
		t.Error("docs/reference/methods.md is out of date: go test ./examples/methods -update")
	}
}

const head = `# Can I write X here?

Published methods, and what each takes: the lines of its code (without comments, tests and the description of its settings where one file has
many methods), and where that code is. Each is held to values of another implementation or of formulas in NumPy by the tests beside it, and to
the conformance kit. Methods in [examples/methods](../../examples/methods) share two plugins; to use one of your own, copy its function into a plugin
that ` + "`cage plugins new`" + ` writes. What a paper does outside of quantizer and optimizer, such as a loss of its own, is not meant. This page is written by
` + "`go test ./examples/methods -update`" + ` from ` + "`methods.toml`" + ` there.
`

func (m method) row() (string, error) {
	if (m.Code == "") == (m.Why == "") {
		return "", fmt.Errorf("want code, or why there is none")
	}
	text := m.Why
	lines := "—"
	if m.Code != "" {
		n, links := 0, []string{}
		for place := range strings.FieldsSeq(m.Code) {
			file, function, _ := strings.Cut(place, "#")
			count, err := countLines(file, function)
			if err != nil {
				return "", err
			}
			n += count
			link := fmt.Sprintf("[%s](../../%s)",
				strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(file), "examples/"), "plugins/"), file)
			if len(links) == 0 {
				links = append(links, link)
			}
		}
		lines, text = fmt.Sprint(n), strings.Join(links, ", ")
		if m.Uses != "" {
			text += "; " + m.Uses
		}
		if m.Note != "" {
			text += "; " + m.Note
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", m.Name, m.Paper, lines, text), nil
}

// countLines counts the lines of code of a file or of one of its functions, without empty lines and
// comments. In files of other languages than Go, lines that begin with # are comments.
func countLines(file, function string) (int, error) {
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return 0, err
	}
	text := string(source)
	if function != "" {
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, source, 0)
		if err != nil {
			return 0, err
		}
		text = ""
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == function {
				text = string(source[files.Position(f.Pos()).Offset:files.Position(f.End()).Offset])
			}
		}
		if text == "" {
			return 0, fmt.Errorf("%s has no function %s", file, function)
		}
	}
	n := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n, nil
}
