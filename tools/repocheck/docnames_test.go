package repocheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDesignNames checks that what docs/design quotes exists: paths, tests, and names in packages.
func TestDesignNames(t *testing.T) {
	const root = "../.."
	// The names in packages, by the packages' names, and those of all tests.
	names, tests := map[string]map[string]bool{}, map[string]bool{}
	paths := map[string]bool{} // with all that they end with
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == filepath.Join(root, "data") ||
			len(d.Name()) > 2 && d.Name()[0] == '.') {
			return fs.SkipDir
		}
		for end := filepath.ToSlash(path); end != ""; _, end, _ = strings.Cut(end, "/") {
			paths[end] = true
		}
		if !strings.HasSuffix(path, ".go") || strings.Contains(path, "testdata") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		of := names[f.Name.Name]
		if of == nil {
			of = map[string]bool{}
			names[f.Name.Name] = of
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				of[d.Name.Name] = true
				tests[d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						of[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							of[n.Name] = true
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	quoted, checked := regexp.MustCompile("`([^`\n]+)`"), 0
	path := regexp.MustCompile(`^(host|sdk|internal|cmd|tools|plugins|scripts|docs|examples)/[\w./-]+$|` +
		`^[\w./-]+\.(go|sh|py|toml)$`)
	test := regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	member := regexp.MustCompile(`^([a-z]\w*)\.([A-Z]\w*)$`)
	files, err := filepath.Glob(filepath.Join(root, "docs/design/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range quoted.FindAllStringSubmatch(string(text), -1) {
			what, ok := q[1], true
			switch m := member.FindStringSubmatch(what); {
			case path.MatchString(what):
				ok = paths[strings.TrimSuffix(what, "/")] || strings.Contains(what, "NAME")
			case test.MatchString(what):
				ok = tests[what]
			case m != nil:
				ok = names[m[1]][m[2]]
			default:
				continue
			}
			if checked++; !ok {
				t.Errorf("%s names %s, which does not exist", filepath.Base(file), what)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d names are checked", checked)
	}
}
