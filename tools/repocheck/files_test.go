package repocheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// changing lists the functions of package os that change the file system.
var changing = []string{
	"Chmod", "Chtimes", "CopyFS", "Create", "CreateTemp", "Link", "Mkdir", "MkdirAll", "MkdirTemp",
	"OpenFile", "OpenRoot",
	"Remove", "RemoveAll", "Rename", "Symlink", "Truncate", "WriteFile",
}

// mayChange lists the files that may call these functions, with the reasons.
var mayChange = map[string]string{
	"internal/vfs/os.go":          "it is the file system of the operating system",
	"internal/testing/*/*":        "for tests only",
	"tools/crashtest/*":           "a program for tests: it damages directories on purpose",
	"tools/syscallfault/*":        "a program for tests",
	"tools/kernelgen/main.go":     "a generator of this repository",
	"host/train/plugin/client.go": "directories of sockets: nothing in them is kept",
	"host/train/plugin/start.go":  "directories of sockets: nothing in them is kept",
	"host/train/plugin/gomain.go": "the cache of built plugins: what is lost is built again",
	"host/train/plugin/scaffold/scaffold.go": "a new module is made in a scratch directory and " +
		"moved into place",
	"cmd/cage/bench.go":      "a profile, for one look",
	"cmd/cage/export.go":     "export --check: a directory of which nothing is kept",
	"tools/opsdoc/main.go":   "a generator of this repository",
	"tools/protogen/main.go": "a generator of this repository",
	"sdk/shared_unix.go":     "memory that is shared with the host: it has no name and nothing is kept",
}

// TestKeptFiles checks that, except in mayChange, files are written only through internal/vfs, so
// that tests can make any operation fail, or simulate a power failure after it.
func TestKeptFiles(t *testing.T) {
	used := map[string]bool{}
	for name, file := range sources(t) {
		calls := changes(t, file)
		if len(calls) == 0 {
			continue
		}
		pattern, ok := exception(t, name)
		used[pattern] = true
		if !ok {
			t.Errorf("%s uses %s: write kept files through internal/vfs or internal/atomicfile, so that "+
				"faults can be injected", name, strings.Join(calls, ", "))
		}
	}
	for pattern, reason := range mayChange {
		if !used[pattern] {
			t.Errorf("the exception %s (%s) is not needed any more", pattern, reason)
		}
	}
}

func exception(t *testing.T, name string) (pattern string, ok bool) {
	for pattern := range mayChange {
		match, err := path.Match(pattern, name)
		if err != nil {
			t.Fatal(err)
		}
		if match {
			return pattern, true
		}
	}
	return "", false
}

// changes returns the functions in changing that a file names.
func changes(t *testing.T, file string) []string {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "os" && slices.Contains(changing, s.Sel.Name) {
				calls = append(calls, "os."+s.Sel.Name)
			}
		}
		return true
	})
	return calls
}
