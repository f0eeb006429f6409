package repocheck

import (
	"flag"
	"fmt"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

var update = flag.Bool("update", false, "write the exported names of the SDK into testdata")

const (
	sdkNames   = "testdata/sdk.txt"
	updateThem = "go test ./tools/repocheck -run TestExportedNames -update"
)

// TestExportedNames compares the exported names of the SDK, with their types, with the list in
// testdata: plugins of others use them. With -update it writes the list, once CHANGELOG.md names
// what plugins can no longer use as they did.
func TestExportedNames(t *testing.T) {
	got := exported(t)
	kept, err := os.ReadFile(sdkNames)
	if err != nil && !*update {
		t.Fatal(err)
	}
	was := strings.Split(strings.TrimSpace(string(kept)), "\n")
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range was {
		if line == "" || slices.Contains(got, line) {
			continue
		}
		name := strings.Fields(line)[1] // PACKAGE NAME TYPE
		if _, field, of := strings.Cut(name, "."); of {
			name = field
		}
		if !*update {
			t.Errorf("gone or changed: %s", line)
		} else if !strings.Contains(string(changelog), name) {
			t.Errorf("gone or changed: %s; say in CHANGELOG.md what authors of plugins have to change", line)
		}
	}
	for _, line := range got {
		if !*update && !slices.Contains(was, line) {
			t.Errorf("new: %s", line)
		}
	}
	switch {
	case t.Failed():
		t.Logf("to keep these names: %s", updateThem)
	case *update:
		if err := os.WriteFile(sdkNames, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// exported lists the exported names of the SDK, one in a line: the package, the name, which is
// TYPE.NAME for fields and methods, and its type.
func exported(t *testing.T) (list []string) {
	t.Helper()
	cfg := &packages.Config{Dir: "../..", Fset: token.NewFileSet(),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedExportFile}
	loaded, err := packages.Load(cfg, "./sdk/...")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range loaded {
		for _, err := range p.Errors {
			t.Fatal(err)
		}
		path := strings.TrimPrefix(p.PkgPath, module+"/")
		if strings.Contains(path, "internal") {
			continue
		}
		add := func(name string, of types.Type) {
			other := func(q *types.Package) string {
				if q == p.Types {
					return ""
				}
				return q.Name()
			}
			list = append(list, fmt.Sprintf("%s %s %s", path, name, types.TypeString(of, other)))
		}
		scope := p.Types.Scope()
		for _, name := range scope.Names() {
			object := scope.Lookup(name)
			if !object.Exported() {
				continue
			}
			declared, ok := object.(*types.TypeName)
			if !ok {
				add(name, object.Type())
				continue
			}
			if declared.IsAlias() {
				add(name, types.Unalias(declared.Type()))
				continue
			}
			members(add, name, declared.Type())
		}
	}
	slices.Sort(list)
	return list
}

// members adds the exported fields and methods of a type, and the type itself: all of it unless it
// is a struct or an interface.
func members(add func(string, types.Type), name string, of types.Type) {
	member := func(o types.Object) {
		if o.Exported() {
			add(name+"."+o.Name(), o.Type())
		}
	}
	switch under := of.Underlying().(type) {
	case *types.Struct:
		add(name, types.NewStruct(nil, nil))
		for field := range under.Fields() {
			member(field)
		}
	case *types.Interface:
		add(name, types.NewInterfaceType(nil, nil))
		for method := range under.Methods() {
			member(method)
		}
		return
	default:
		add(name, under)
	}
	methods := types.NewMethodSet(types.NewPointer(of))
	for selection := range methods.Methods() {
		if len(selection.Index()) == 1 { // its own, not of an embedded field
			member(selection.Obj())
		}
	}
}
