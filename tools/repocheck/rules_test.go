package repocheck

import (
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/cage-qat/cage"

// rule limits what some packages may import. Patterns are import paths, relative to the module if
// they begin with ./; a trailing /... also matches everything below.
type rule struct {
	from []string
	// never lists what must not be imported, directly or indirectly.
	never []string
	// only lists what may be imported directly, besides the standard library; nil: anything.
	only   []string
	reason string
}

var rules = []rule{
	{from: []string{"./sdk/..."}, never: []string{"./host/...", "./plugins/...", "./cmd/...",
		"./internal/..."},
		reason: "the sdk stands on its own: a plugin is built without the host, and what its author " +
			"imports is what he sees"},
	{from: []string{"./sdk/program/..."},
		only:   []string{"./sdk/program/...", "gonum.org/v1/gonum/..."},
		reason: "the language stands on its own: it knows nothing of plugins, processes or the wire"},
	{from: []string{"./host/train/config", "./host/train/rundir", "./host/study/serve",
		"./host/model/huggingface"}, never: []string{"./host/compute/engine"},
		reason: "reading a configuration, a run directory or a checkpoint needs no tensor engine"},
	{from: []string{"./host/train/..."}, never: []string{"./host/data/chat/..."},
		reason: "training needs one number of a chat template, the end of a turn, which callers give"},
	{from: []string{"./internal/..."},
		never:  []string{"./host/...", "./plugins/...", "./cmd/..."},
		reason: "internal holds general helpers, which know nothing of training"},
	{from: []string{"./examples/..."}, only: []string{"./sdk/..."},
		reason: "examples are what anybody can build: their module imports the sdk, and nothing " +
			"internal outside of its tests"},
	{from: []string{"./plugins/..."}, only: []string{"./sdk", "./sdk/program", "./sdk/microscaling"},
		reason: "an algorithm is written against the public interface alone, so that anybody's plugin " +
			"can do what ours do"},
	{from: []string{"./host/cage/..."}, never: []string{"./plugins/...", "./host/train/plugin/...",
		"./sdk/client/..."},
		reason: "the method goes with every quantizer and optimizer: it knows none of them, and no " +
			"processes"},
	{from: []string{"./host/compute/..."}, never: []string{"./host/cage/..."},
		reason: "an executor runs any program: it does not know what a step or a method is"},
}

// direct lists packages that only some packages may import directly.
var direct = []struct {
	what, by []string
	reason   string
}{
	{[]string{"./sdk/internal/wire/..."}, []string{"./sdk", "./sdk/client", "./sdk/internal/wire/..."},
		"protobuf types stay at the two ends of the wire; everybody else sees the types of sdk and " +
			"program"},
	{[]string{"google.golang.org/protobuf/...", "google.golang.org/genproto/..."},
		[]string{"./sdk/client", "./sdk/internal/wire/...", "./tools/protogen", "./host/train/metrics",
			"./host/train/processes/..."},
		"protobuf types stay at the two ends of the wire; everybody else sees the types of sdk and " +
			"program. Event files are protobuf messages, too, and the processes of a training have " +
			"messages of their own"},
	{[]string{"github.com/hashicorp/go-plugin/...", "google.golang.org/grpc/..."},
		[]string{"./sdk", "./sdk/client", "./sdk/internal/wire/...", "./host/train/plugin",
			"./host/train/processes/..."},
		"processes and connections are the business of one place on each side; gRPC also connects the " +
			"processes of one training"},
	{[]string{"./internal/testing/...", "./host/testing/..."},
		[]string{"./internal/testing/...", "./host/testing/...", "./tools/..."},
		"test support is imported by tests and tools alone"},
	{[]string{"github.com/gomlx/..."}, []string{"./host/compute/engine"},
		"accelerators are reached from one package"},
	{[]string{"./host/compute/graph"}, []string{"./host/compute/engine", "./host/compute/lower",
		"./host/model/graphs", "./host/compute/stage", "./host/train/step", "./host/testing/..."},
		"graphs are built in few packages; all others see buffers and executables"},
	{[]string{"./cmd/...", "./plugins/..."}, nil, "commands are not libraries"},
}

var loaded = sync.OnceValues(func() ([]*packages.Package, error) {
	return packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedModule,
		Dir: "../..",
	}, "./...", "./tools/...", "./examples/...")
})

// load returns the packages of all three modules without their tests.
func load(t *testing.T) []*packages.Package {
	t.Helper()
	all, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages were found", len(all))
	}
	return all
}

// goFiles lists the Go files of a package for all systems, without tests.
func goFiles(p *packages.Package) []string {
	return slices.DeleteFunc(slices.Concat(p.GoFiles, p.IgnoredFiles), func(file string) bool {
		return filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go")
	})
}

// sources yields the Go files of the repository for all systems, without tests: their paths in the
// repository, and on disk.
func sources(t *testing.T) iter.Seq2[string, string] {
	return func(yield func(name, file string) bool) {
		for _, p := range load(t) {
			for _, file := range goFiles(p) {
				if !yield(path.Join(strings.TrimPrefix(p.PkgPath, module+"/"), filepath.Base(file)), file) {
					return
				}
			}
		}
	}
}

// matches reports whether an import path matches one of the patterns.
func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if rest, ok := strings.CutPrefix(p, "./"); ok {
			p = module + "/" + rest
		}
		base, tree := strings.CutSuffix(p, "/...")
		return path == base || tree && strings.HasPrefix(path, base+"/")
	})
}

func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func TestImports(t *testing.T) {
	for _, p := range load(t) {
		for _, r := range rules {
			if matches(p.PkgPath, r.from) {
				r.check(t, p)
			}
		}
		for path := range p.Imports {
			for _, d := range direct {
				if matches(path, d.what) && !matches(p.PkgPath, d.by) {
					t.Errorf("%s imports %s: %s", p.PkgPath, path, d.reason)
				}
			}
		}
	}
}

func (r rule) check(t *testing.T, p *packages.Package) {
	for path := range p.Imports {
		if r.only != nil && !standard(path) && !matches(path, r.only) {
			t.Errorf("%s imports %s: %s", p.PkgPath, path, r.reason)
		}
	}
	if chain := r.reaches(p, map[*packages.Package]bool{}); chain != "" {
		t.Errorf("%s: %s", chain, r.reason)
	}
}

// reaches returns a chain of imports from p to a package that r forbids.
func (r rule) reaches(p *packages.Package, seen map[*packages.Package]bool) string {
	seen[p] = true
	for path, imported := range p.Imports {
		if matches(path, r.never) {
			return p.PkgPath + " imports " + path
		}
		if seen[imported] || standard(path) {
			continue
		}
		if chain := r.reaches(imported, seen); chain != "" {
			return p.PkgPath + " imports " + chain
		}
	}
	return ""
}

// TestPackageComments checks that every package has exactly one package comment.
func TestPackageComments(t *testing.T) {
	for _, p := range load(t) {
		var with []string
		for _, file := range goFiles(p) {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil,
				parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if parsed.Doc != nil {
				with = append(with, filepath.Base(file))
			}
		}
		if len(p.GoFiles)+len(p.IgnoredFiles) > 0 && len(with) != 1 {
			t.Errorf("%s has %d package comments %v, want exactly one, which tells a newcomer what lives "+
				"there", p.PkgPath, len(with), with)
		}
	}
}

var imports = regexp.MustCompile(`"` + regexp.QuoteMeta(module) + `[a-z/]*"`)

// TestPluginsDoNotKnowTheMethod checks that the directories of plugins, which are independent of
// the training method, name cage only in import paths.
func TestPluginsDoNotKnowTheMethod(t *testing.T) {
	read := 0
	err := filepath.WalkDir("../../plugins", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		for i, line := range strings.Split(strings.ToLower(string(text)), "\n") {
			if strings.Contains(imports.ReplaceAllString(line, ""), "cage") {
				t.Errorf("%s:%d speaks of the method", path, i+1)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 20 {
		t.Errorf("only %d files were read", read)
	}
}

// named matches identifiers of package method that belong to one method.
var named = regexp.MustCompile(
	`\bmethod\.(CAGE|LOTION|OsciReset|PARQ|Name[A-Z]\w*|Default\w*|Decoupled|Coupled|Official|Paper)\b`)

// TestStepsKnowNoMethodByName checks that code that runs rules names no method of training.
func TestStepsKnowNoMethodByName(t *testing.T) {
	read := 0
	for _, dir := range []string{"../../host/train/step", "../../host/compute"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			read++
			for i, line := range strings.Split(string(text), "\n") {
				if found := named.FindString(line); found != "" {
					t.Errorf("%s:%d knows %s", path, i+1, found)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 100 {
		t.Errorf("only %d files were read", read)
	}
}

// outside lists the modules from which a plugin outside of this repository is built, and those that
// its tests also need.
var outside = map[string][]string{
	"sdk": {
		"github.com/fatih/color", "github.com/golang/protobuf", "github.com/hashicorp/go-hclog",
		"github.com/hashicorp/go-plugin",
		"github.com/hashicorp/yamux", "github.com/mattn/go-colorable", "github.com/mattn/go-isatty",
		"github.com/oklog/run",
		"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
		"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc",
		"google.golang.org/protobuf",
	},
	"sdk/sdktest": {"gonum.org/v1/gonum"},
}

// TestOutsidePlugins checks that the author of a plugin downloads only go-plugin with its
// dependencies, and gonum for the conformance kit.
func TestOutsidePlugins(t *testing.T) {
	linked := map[string]map[string]bool{"sdk": {}, "sdk/program": {}, "sdk/sdktest": {}}
	for _, p := range load(t) {
		for name, modules := range linked {
			if p.PkgPath == module+"/"+name {
				packages.Visit([]*packages.Package{p}, nil, func(q *packages.Package) {
					if q.Module != nil && !q.Module.Main {
						modules[q.Module.Path] = true
					}
				})
			}
		}
	}
	for name, want := range map[string][]string{
		"sdk": outside["sdk"],
		"sdk/sdktest": slices.Sorted(
			slices.Values(slices.Concat(outside["sdk"], outside["sdk/sdktest"]))),
		"sdk/program": nil,
	} {
		if got := slices.Sorted(maps.Keys(linked[name])); !slices.Equal(got, want) {
			t.Errorf("%s is built from the modules %q, want %q: authors of plugins download them, and "+
				"docs/reference/sdk.md counts them", name, got, want)
		}
	}
}
