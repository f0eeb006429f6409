// Command docrows turns Go documentation into conversations, one JSON object per line: a question
// about a symbol, and its doc comment as the answer. `make life` fine-tunes a model on them. Every
// machine with Go has this documentation, under Go's licence. Packages whose first file is a code
// generator, such as sort, are left out.
//
// The content of conversations is defined here; host/data/chat reads them.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// options configures the conversations.
type options struct {
	root string // directory of packages, such as $(go env GOROOT)/src
	// maximum length of an answer in characters; longer comments are cut after a sentence
	longest int
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// row is a line of the output file.
type row struct {
	ID       string    `json:"id"`
	Messages []message `json:"messages"`
	Source   string    `json:"source"`
}

// write writes conversations about all exported symbols below the root, one JSON object per line,
// in the order of their packages. It returns their number. It skips commands, internal packages,
// tests and vendored code.
func write(w io.Writer, o options) (int, error) {
	dirs, err := packages(o.root)
	if err != nil {
		return 0, err
	}
	n := 0
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for _, dir := range dirs {
		list, err := o.conversations(dir)
		if err != nil {
			return n, err
		}
		for _, r := range list {
			if err := encoder.Encode(r); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// packages lists the package directories below the root, sorted.
func packages(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		switch name := entry.Name(); {
		case path == root:
			return nil
		case name == "internal" || name == "vendor" || name == "testdata" || name == "cmd" ||
			strings.HasPrefix(name, "."):
			return filepath.SkipDir
		}
		dirs = append(dirs, path)
		return nil
	})
	slices.Sort(dirs)
	return dirs, err
}

// conversations returns the conversations about the package in dir. There are none if dir contains
// no package.
func (o options) conversations(dir string) ([]row, error) {
	path, err := filepath.Rel(o.root, dir)
	if err != nil {
		return nil, err
	}
	path = filepath.ToSlash(path)
	p, err := parse(dir, path)
	if p == nil || err != nil {
		return nil, err
	}
	var rows []row
	add := func(what, symbol, comment string) {
		if answer := o.answer(comment); answer != "" {
			question := fmt.Sprintf("What is the %s %s?", what, symbol)
			if what == "function" || what == "method" {
				question = fmt.Sprintf("What does the %s %s do?", what, symbol)
			}
			rows = append(rows, row{ID: path + "#" + symbol, Source: "go",
				Messages: []message{{"user", question}, {"assistant", answer}}})
		}
	}
	add("package", path, p.Doc)
	functions := func(list []*doc.Func) {
		for _, f := range list {
			add("function", p.Name+"."+f.Name, f.Doc)
		}
	}
	functions(p.Funcs)
	for _, t := range p.Types {
		add("type", p.Name+"."+t.Name, t.Doc)
		functions(t.Funcs)
		for _, m := range t.Methods {
			add("method", p.Name+"."+t.Name+"."+m.Name, m.Doc)
		}
	}
	return rows, nil
}

// parse reads the documentation of a package. It returns nil if there is no package, or a command.
func parse(dir, path string) (*doc.Package, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if len(parsed) == 0 || f.Name.Name == parsed[0].Name.Name { // not "ignore" and "main" beside it
			parsed = append(parsed, f)
		}
	}
	if len(parsed) == 0 || parsed[0].Name.Name == "main" {
		return nil, nil
	}
	return doc.NewFromFiles(files, parsed, path)
}

// answer returns the first paragraph of a doc comment as plain text. It returns "" if there is no
// comment or its first sentence is too long.
func (o options) answer(comment string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(comment), "\n\n")
	text := strings.Join(strings.Fields(first), " ")
	if utf8.RuneCountInString(text) <= o.longest {
		return text
	}
	cut := string([]rune(text)[:o.longest])
	if i := strings.LastIndex(cut, ". "); i >= 0 {
		return cut[:i+1]
	}
	return ""
}

func main() {
	root := flag.String("root", "", "directory of packages, as $(go env GOROOT)/src")
	longest := flag.Int("longest", 240, "characters of an answer")
	out := flag.String("out", "", "file to write")
	flag.Parse()
	if err := run(*root, *longest, *out); err != nil {
		fmt.Fprintln(os.Stderr, "docrows:", err)
		os.Exit(1)
	}
}

func run(root string, longest int, out string) error {
	if root == "" || out == "" {
		return fmt.Errorf("-root and -out are required: the directory of packages and the file to write")
	}
	var text bytes.Buffer
	n, err := write(&text, options{root: root, longest: longest})
	if err != nil {
		return err
	}
	if err := vfs.At(filepath.Dir(out)).MkdirAll(); err != nil {
		return err
	}
	if err := atomicfile.WriteBytes(vfs.At(out), text.Bytes()); err != nil {
		return err
	}
	fmt.Printf("%d conversations in %s\n", n, out)
	return nil
}
