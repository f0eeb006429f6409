package repocheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTour checks that docs/design/tour.md names at most twelve files, with their numbers of lines,
// and functions that exist. Those in its numbered list call each other, in at most seven calls, and
// the last one subtracts the correction.
func TestTour(t *testing.T) {
	const root = "../../"
	text, err := os.ReadFile(filepath.Join(root, "docs/design/tour.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(
		"(?m)^(\\d+\\.|-) \\[`(.+?)`\\]\\(\\.\\./\\.\\./(.+?)\\) \\((\\d+) lines\\): (.*)$")
	quoted := regexp.MustCompile("`([A-Za-z]\\w*)`")
	files, bodies := map[string]bool{}, []ast.Node{}
	var names []string
	for _, r := range row.FindAllStringSubmatch(string(text), -1) {
		path := r[2]
		if files[path] = true; path != r[3] {
			t.Errorf("%s leads to %s", path, r[3])
		}
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
			continue
		}
		lines := strings.Count(string(source), "\n")
		if stated, _ := strconv.Atoi(r[4]); stated*10 < lines*9 || stated*10 > lines*11 {
			t.Errorf("%s has %d lines, not %d", path, lines, stated)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		functions := map[string]ast.Node{}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				functions[f.Name.Name] = f.Body
			}
		}
		for i, name := range quoted.FindAllStringSubmatch(r[5], -1) {
			if functions[name[1]] == nil {
				t.Errorf("%s has no function %s", path, name[1])
			} else if i == 0 && r[1] != "-" {
				names, bodies = append(names, name[1]), append(bodies, functions[name[1]])
			}
		}
	}
	if len(files) == 0 || len(files) > 12 {
		t.Errorf("%d files, want at most 12", len(files))
	}
	if len(names) < 2 || len(names) > 8 {
		t.Fatalf("the way to the correction is %v, want at most 7 calls", names)
	}
	for i, body := range bodies[:len(bodies)-1] {
		if !calls(body, names[i+1]) {
			t.Errorf("%s does not call %s", names[i], names[i+1])
		}
	}
	if !calls(bodies[len(bodies)-1], "Sub") ||
		!strings.Contains(string(text), "`y = y.Sub(e.Mul(αλ))`") {
		t.Errorf("the tour does not end where the correction is subtracted")
	}
}

// calls reports whether a function calls another one of that name.
func calls(body ast.Node, name string) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch f := call.Fun.(type) {
			case *ast.Ident:
				found = found || f.Name == name
			case *ast.SelectorExpr:
				found = found || f.Sel.Name == name
			}
		}
		return true
	})
	return found
}
