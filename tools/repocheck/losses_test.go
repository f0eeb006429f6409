package repocheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strconv"
	"testing"
)

// The rule: cage removes, renames, truncates, appends to and replaces only files that it made
// itself, which it recognizes by name and content, or that the user names as an output, and never
// through a link. internal/vfs handles links: no changing method of a Path follows a link below the
// directory that the user has named, and only regular files are removed or replaced. But only the
// code that changes a file can determine whose file it is. So each such place is listed in knows,
// with how it determines that.
//
// Files that are kept are written only through internal/vfs, so that tests can make any operation
// fail, or simulate a power failure after it. So each use of a function of package os that changes
// the file system is listed, too, with the reason why it need not be tested in this way.

// losing lists the functions that may lose the content of an existing file, by package, or "" for
// methods of any type. Those of package os include all that change the file system.
var losing = map[string][]string{
	"os": {"Chmod", "Chtimes", "CopyFS", "Create", "CreateTemp", "Link", "Mkdir", "MkdirAll",
		"MkdirTemp", "OpenFile", "OpenRoot", "Remove", "RemoveAll", "Rename", "Symlink", "Truncate",
		"WriteFile"},
	"syscall": unixCalls, "golang.org/x/sys/unix": unixCalls,
	module + "/internal/atomicfile": {"Create", "RemoveAbandoned", "Temporary", "Write", "WriteBytes",
		"WriteDir", "WriteJSON"},
	module + "/internal/jsonlines": {"Continue", "Create"},
	"": {"CommitAs", "OpenFile", "Remove", "RemoveAll", "RemoveDir",
		"Rename", "Truncate"},
}

var unixCalls = []string{"Creat", "Fallocate", "Ftruncate", "Open", "Openat", "Rename", "Renameat",
	"Renameat2", "Rmdir", "Truncate", "Unlink", "Unlinkat"}

// notOfUsers lists files of programs that no user runs, and file systems for tests.
var notOfUsers = []string{
	"internal/testing/*/*", "host/testing/*/*", "tools/*/*",
}

// TestLosses checks that each place that may lose the content of a file is in knows.
func TestLosses(t *testing.T) {
	used := map[string]bool{}
	for name, file := range sources(t) {
		if slices.ContainsFunc(notOfUsers,
			func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }) {
			continue
		}
		for _, site := range losses(t, file) {
			used[name+": "+site] = true
			if knows[name][site] == "" {
				t.Errorf("%s: %q removes, renames, truncates, appends to or replaces a file, or changes the "+
					"file system by package os. Write kept files through internal/vfs or "+
					"internal/atomicfile, so that tests can inject faults. See that the file is one of "+
					"cage's own, by its name and its content (atomicfile.CheckOurs), or one that the user "+
					"has named, and add it to knows in owners_test.go with how that is known", name, site)
			}
		}
	}
	for name, sites := range knows {
		for site, how := range sites {
			if !used[name+": "+site] {
				t.Errorf("%s: %q (%s) is not there any more", name, site, how)
			}
		}
	}
}

// losses returns the places in a file that name a function in losing, called or not, as "function:
// expression".
func losses(t *testing.T, file string) (sites []string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]string{}
	for _, i := range parsed.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(from)
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = from
	}
	for _, d := range parsed.Decls {
		where := "declaration"
		if f, ok := d.(*ast.FuncDecl); ok {
			where = f.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from := ""
			// an identifier with an object is declared in this file, so it is no package
			if x, ok := s.X.(*ast.Ident); ok && x.Obj == nil {
				from = imported[x.Name]
			}
			if slices.Contains(losing[from], s.Sel.Name) {
				if site := where + ": " + types.ExprString(s); !slices.Contains(sites, site) {
					sites = append(sites, site)
				}
			}
			return true
		})
	}
	return sites
}
