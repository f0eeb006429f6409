package plugin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
)

// write creates a file and its parent directories.
func write(t *testing.T, mode os.FileMode, content string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFindOrder(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write(t, 0o755, "", b, "quest")
	write(t, 0o755, "", b, "adamw")
	first := write(t, 0o755, "", a, "quest")
	write(t, 0o644, "", a, "adamw") // not executable: the search continues
	f := &Finder{Dirs: []string{filepath.Join(a, "none"), a, b}}
	for name, want := range map[string]string{
		"quest":                   first,
		"adamw":                   filepath.Join(b, "adamw"),
		filepath.Join(b, "quest"): filepath.Join(b, "quest"),
	} {
		got, err := f.Find(t.Context(), name)
		if err != nil || got.Path != want || got.Name != name {
			t.Errorf("%s: got %+v, %v; want %s", name, got, err, want)
		}
	}
	t.Chdir(b)
	if got, err := f.Find(t.Context(), "./quest"); err != nil ||
		got.Path != filepath.Join(b, "quest") {
		t.Errorf("a relative path: %+v, %v", got, err)
	}
}

// TestHoldsMain checks holdsMain for a directory whose name contains special characters of globs.
func TestHoldsMain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "q[1]*")
	write(t, 0o644, "package main_test\n", dir, "main_test.go")
	if holdsMain(dir) || holdsMain(filepath.Join(dir, "none")) {
		t.Error("there is no main package")
	}
	write(t, 0o644, "package main\n", dir, "main.go")
	if !holdsMain(dir) {
		t.Error("there is a main package")
	}
}

func TestNotFound(t *testing.T) {
	dir := t.TempDir()
	write(t, 0o755, "", dir, "quest")
	write(t, 0o755, "", dir, "adamw")
	write(t, 0o755, "", dir, ".hidden")
	write(t, 0o644, "", dir, "README.md")
	write(t, 0o644, "", dir, "lsq")
	write(t, 0o644, "package library\n", dir, "library", "library.go")
	gone := filepath.Join(dir, "gone")
	f := &Finder{Dirs: []string{dir, gone}}
	for name, words := range map[string][]string{
		"qest": {`plugin qest: not found (did you mean "quest"?); looked in`, "\n  " +
			dir + "\n  " + gone + " (no such directory)"},
		"QuEST":                   {`did you mean "quest"?`},
		"muon":                    {"(there are adamw, quest)"},
		"lsq":                     {dir + " (exists, but the file cannot be executed"},
		"library":                 {"(exists, but the directory contains no Go main package)"},
		"":                        {`plugin "": invalid plugin name`},
		"..":                      {"invalid plugin name"},
		"./none":                  {"no such file or directory"},
		filepath.Join(dir, "lsq"): {"cannot be executed"},
	} {
		_, err := f.Find(t.Context(), name)
		check(t, err, ErrNotFound, words...)
	}
	_, err := (&Finder{Dirs: []string{gone}}).Find(t.Context(), "quest")
	check(t, err, ErrNotFound, "there are none")
}

func TestNewFinder(t *testing.T) {
	work := t.TempDir()
	t.Chdir(work)
	t.Setenv(PathVariable, strings.Join([]string{"/a/b", "", "relative", "plugins"},
		string(filepath.ListSeparator)))
	t.Setenv("XDG_CACHE_HOME", "/cache")
	f, err := NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		t.Fatal(err)
	}
	want := []string{"/a/b", filepath.Join(work, "relative"), filepath.Join(work, "plugins"),
		filepath.Join(filepath.Dir(self), "plugins")}
	if diff := cmp.Diff(want, f.Dirs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.HasSuffix(f.CacheDir, filepath.Join("cage", "plugins")) {
		t.Errorf("cache in %s", f.CacheDir)
	}
}

// goPlugin writes a Go package that is not a real plugin but builds quickly.
func goPlugin(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, 0o644, "module example.org/p\n\ngo 1.24\n", dir, "p", "go.mod")
	write(t, 0o644, "package main\n\nfunc main() { println("+text+") }\n", dir, "p", "main.go")
	return dir
}

// TestBuildCache checks that a package is built once for each state of its sources.
func TestBuildCache(t *testing.T) {
	testlevel.Long(t, "builds a plugin several times")
	t.Parallel()
	dir := goPlugin(t, `"one"`)
	var told []string
	f := &Finder{Dirs: []string{dir}, CacheDir: t.TempDir(),
		Notify: func(s string) { told = append(told, s) }}
	find := func() (string, time.Time) {
		t.Helper()
		exe, err := f.Find(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(exe.Path)
		if err != nil {
			t.Fatal(err)
		}
		return exe.Path, info.ModTime()
	}
	first, at := find()
	if again, againAt := find(); again != first || !againAt.Equal(at) {
		t.Error("the same sources were built again")
	}
	if want := []string{"building plugin p …"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	write(t, 0o644, "package main\n\nfunc main() { println(\"two\") }\n", dir, "p", "main.go")
	if edited, _ := find(); edited == first {
		t.Error("edited sources were not built again")
	}
	write(t, 0o644, "package main\n", dir, "p", "more_test.go")
	edited, _ := find()
	// in Go 1.21 loop variables have another meaning
	write(t, 0o644, "module example.org/p\n\ngo 1.21\n", dir, "p", "go.mod")
	second, _ := find()
	if second == edited {
		t.Error("sources in another version of Go were not built again")
	}
	old := time.Now().Add(-2 * keepBuilds)
	if err := os.Chtimes(filepath.Dir(first), old, old); err != nil {
		t.Fatal(err)
	}
	write(t, 0o644, "package main\n\nfunc main() { println(\"three\") }\n", dir, "p", "main.go")
	find()
	if _, err := os.Stat(first); err == nil {
		t.Error("an old build was kept")
	}
	if _, err := os.Stat(second); err != nil {
		t.Error("a recent build was removed")
	}
	if left, err := filepath.Glob(filepath.Join(f.CacheDir, "building-*")); err != nil ||
		len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestBuildErrors(t *testing.T) {
	testlevel.Long(t, "builds plugins")
	f := &Finder{Dirs: []string{"testdata/plugins"}, CacheDir: t.TempDir()}
	_, err := f.Find(t.Context(), "broken")
	check(t, err, ErrBuild, "main.go:4:15: undefined: undefined", "plugin broken")

	dir := goPlugin(t, `"x"`)
	write(t, 0o644, "package main\n\nfunc main( {\n", dir, "p", "main.go")
	_, err = (&Finder{Dirs: []string{dir}, CacheDir: t.TempDir()}).Find(t.Context(), "p")
	check(t, err, ErrBuild, "main.go:3:12")

	dir = goPlugin(t, `"x"`)
	_, err = (&Finder{Dirs: []string{dir}}).Find(t.Context(), "p")
	check(t, err, ErrBuild, "there is no cache directory")
	t.Setenv("PATH", t.TempDir())
	_, err = (&Finder{Dirs: []string{dir}, CacheDir: t.TempDir()}).Find(t.Context(), "p")
	check(t, err, ErrBuild, "no go command found")
}

// shelf returns a finder for a directory with plugins under the names of their behaviours.
func shelf(t testing.TB, behaviours ...string) *Finder {
	t.Helper()
	dir := t.TempDir()
	for _, b := range behaviours {
		if err := os.Symlink(link(t, b).Path, filepath.Join(dir, b)); err != nil {
			t.Fatal(err)
		}
	}
	return &Finder{Dirs: []string{dir}}
}

func TestList(t *testing.T) {
	testlevel.Long(t, "starts several plugins")
	t.Parallel()
	f := shelf(t, "quantizer", "optimizer", "both", "crashes-at-start")
	var got []string
	for _, l := range f.List(t.Context(), Options{}) {
		got = append(got, l.Name+" "+string(l.Kind))
		switch {
		case l.Name == "crashes-at-start":
			check(t, l.Err, ErrStart, "status 3")
		case l.Err != nil || l.Description.Name != "test":
			t.Errorf("%+v", l)
		}
	}
	want := []string{"both quantizer", "both optimizer", "crashes-at-start ", "optimizer optimizer",
		"quantizer quantizer"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFinderStart(t *testing.T) {
	t.Parallel()
	f := shelf(t, "quantizer", "crashes-at-start")
	c, err := f.Start(t.Context(), "quantizer", sdk.KindQuantizer, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Kind() != sdk.KindQuantizer || filepath.Base(c.Path()) != "quantizer" {
		t.Errorf("got %s, a %s", c.Path(), c.Kind())
	}
	c.Close()
	if alive(c.PID()) {
		t.Error("the plugin still runs")
	}
	_, err = f.Start(t.Context(), "crashes-at-start", sdk.KindOptimizer, Options{})
	check(t, err, ErrStart)
	_, err = f.Start(t.Context(), "none", "", Options{})
	check(t, err, ErrNotFound)
}

// BenchmarkStart measures the time to start a plugin and request a program, without stopping it.
func BenchmarkStart(b *testing.B) {
	f := shelf(b, "quantizer")
	for b.Loop() {
		c, err := f.Start(b.Context(), "quantizer", sdk.KindQuantizer, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Quantize(b.Context(), site("")); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		c.Close()
		b.StartTimer()
	}
}
