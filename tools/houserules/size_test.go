package houserules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Limits of what a reader has to hold in mind at once.
const (
	mostLines     = 300 // of a file
	mostOfAScreen = 50  // lines of a function
)

// TestSizes: a function fits a screen, and a file a head. Generated files and tests, whose
// tables are long, are left out.
func TestSizes(t *testing.T) {
	for name, file := range sources(t) {
		if strings.HasSuffix(file, ".pb.go") {
			continue
		}
		files := token.NewFileSet()
		tree, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		lines := func(n ast.Node) int { return files.Position(n.End()).Line - files.Position(n.Pos()).Line + 1 }
		if n := files.File(tree.FileStart).LineCount(); n > mostLines {
			t.Errorf("%s has %d lines, want at most %d", name, n, mostLines)
		}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && lines(f) > mostOfAScreen {
				t.Errorf("%s: %s has %d lines, want at most %d", name, f.Name.Name, lines(f), mostOfAScreen)
			}
		}
	}
}
