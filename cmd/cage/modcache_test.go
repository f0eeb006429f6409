package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
)

// bareModules makes a module cache that holds what this module is built and tested
// from and nothing else, as after make test on a new machine. The one of the person who
// runs the tests may hold anything that was ever fetched, and hide that a command asks
// for more.
func bareModules(t *testing.T) (dir string) {
	t.Helper()
	full := goOut(t, "env", "GOMODCACHE")
	list := goOut(t, "list", "-deps", "-test", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}{{end}}{{end}}", "./...")
	dir = t.TempDir()
	linked := map[string]bool{}
	for _, name := range strings.Fields(list) {
		if !linked[name] {
			linked[name] = true
			linkModule(t, full, dir, name)
		}
	}
	if len(linked) < 10 {
		t.Fatalf("only %d modules", len(linked))
	}
	return dir
}

// linkModule makes one module of a cache, PATH@VERSION, appear in another.
func linkModule(t *testing.T, from, to, name string) {
	t.Helper()
	path, version, _ := strings.Cut(name, "@")
	path, err := module.EscapePath(path)
	if err == nil {
		version, err = module.EscapeVersion(version)
	}
	if err != nil {
		t.Fatal(err)
	}
	link(t, from, to, path+"@"+version)
	for _, ending := range []string{"info", "mod", "zip", "ziphash"} {
		link(t, from, to, filepath.Join("cache", "download", path, "@v", version+"."+ending))
	}
}

func link(t *testing.T, from, to, name string) {
	t.Helper()
	target := filepath.Join(to, name)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(from, name)); err != nil && filepath.Ext(name) == ".info" {
		return // it is not fetched with the module
	}
	if err := os.Symlink(filepath.Join(from, name), target); err != nil {
		t.Fatal(err)
	}
}

// goOut runs the go command at the root of the repository.
func goOut(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}
