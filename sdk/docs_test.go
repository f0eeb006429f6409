package sdk_test

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

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// capabilities returns the optional interfaces of an author's type, with their methods.
func capabilities(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok || strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, s := range general.Specs {
				named, ok := s.(*ast.TypeSpec)
				if !ok || !named.Name.IsExported() {
					continue
				}
				list, ok := named.Type.(*ast.InterfaceType)
				if !ok || slices.Contains([]string{"Quantizer", "Optimizer", "OpaqueOptimizer"},
					named.Name.Name) {
					continue
				}
				for _, m := range list.Methods.List {
					out[named.Name.Name] = append(out[named.Name.Name], m.Names[0].Name)
				}
			}
		}
	}
	return out
}

// TestCapabilitiesAreWritten checks that docs/reference/sdk.md has a table row for each method of
// an optional interface, and the package comment one mention.
func TestCapabilitiesAreWritten(t *testing.T) {
	page, comment := read(t, "../docs/reference/sdk.md"), read(t, "doc.go")
	all := capabilities(t)
	if len(all) < 17 {
		t.Errorf("only %d capabilities are found", len(all))
	}
	for name, methods := range all {
		for _, m := range methods {
			row := regexp.MustCompile("(?m)^\\| `sdk\\." + name + "` \\|[^|]*`" + m + "`[^|]*\\|")
			if n := len(row.FindAllString(page, -1)); n != 1 {
				t.Errorf("%s with %s has %d rows in the tables of docs/reference/sdk.md, want 1", name, m, n)
			}
		}
		if n := strings.Count(comment, "["+name+"]"); n != 1 {
			t.Errorf("%s is %d times in the documentation of the package, want 1", name, n)
		}
	}
}

// TestProgramsAreWritten checks that each program of an answer has one row in the page of the
// protocol, and that the page names every input.
func TestProgramsAreWritten(t *testing.T) {
	page := read(t, "../docs/reference/plugin-protocol.md")
	cut := strings.Index(page, "An optimizer answers for each tensor with")
	p := &program.Program{}
	q := spec.Quantizer{Program: p, Evaluate: p, Init: p, InitState: p, Next: p, Backward: p,
		Unpack: p, Trained: []spec.Tensor{{Constrain: p}}}
	o := spec.Optimizer{Init: p, Update: p, Observe: p, FirstRefresh: p, Refresh: p, Rate: p,
		Evaluate: p, Probe: p, Collect: p}
	one := func(kind, name, part string) {
		name, _, _ = strings.Cut(name, " ")
		if n := len(regexp.MustCompile("(?m)^\\| `"+name+"`.*\\|.*\\|.*\\|.*\\|$").
			FindAllString(part, -1)); n != 1 {
			t.Errorf("the program %s of %s has %d rows, want 1", name, kind, n)
		}
	}
	for name := range q.Programs() {
		if name == "quantize" {
			name = "program" // the name of its field
		}
		one("a quantizer", name, page[:cut])
	}
	for name := range o.Programs() {
		one("an optimizer", name, page[cut:])
	}
	for _, list := range [][]program.Input{spec.StepInputs, spec.ColumnInputs(nil),
		spec.UpdateInputs(), spec.ProbeInputs(nil)} {
		for _, in := range list {
			if !strings.Contains(page, "`"+in.Name+"`") {
				t.Errorf("the input %s is not explained", in.Name)
			}
		}
	}
}
