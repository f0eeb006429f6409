package repocheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testRun matches a command of a script that runs some tests of packages: go test with packages and
// -run, or the function check of scripts/xla.sh. Alternatives must not be in parentheses.
var testRun = regexp.MustCompile(`\b(test\b.* -run|check \./\S+) ('[^']*'|[\w|]+)`)

// TestRunPatterns checks that each alternative of an expression that selects tests in a script
// still selects one. Otherwise, a test that gets another name would no longer be run there.
func TestRunPatterns(t *testing.T) {
	scripts, err := filepath.Glob("../../scripts/*.sh")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range append(scripts, "../../Makefile", "../../.ci/run") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			command := testRun.FindStringSubmatch(line)
			packages := regexp.MustCompile(`\./[\w/]+`).FindAllString(line, -1)
			if command == nil || packages == nil {
				continue
			}
			found++
			var tests []string
			for _, pkg := range packages {
				tests = append(tests, testsOf(t, filepath.Join("../..", pkg))...)
			}
			for alternative := range strings.SplitSeq(strings.Trim(command[2], "'"), "|") {
				pattern, _, _ := strings.Cut(alternative, "/") // what follows selects subtests
				if !slices.ContainsFunc(tests, regexp.MustCompile(pattern).MatchString) {
					t.Errorf("%s: no test of %s matches %q", name, strings.Join(packages, ", "), alternative)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d commands that select tests were found", found)
	}
}

// testsOf returns the functions in the files of tests in a directory, whatever their build tags.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
