package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/cage-qat/cage/host/train/plugin/scaffold"
	"github.com/cage-qat/cage/internal/gotool"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// publish makes a module proxy with the parts of this module that a plugin needs, as a version, and
// returns its directory.
func publish(t *testing.T, version string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	versions := filepath.Join(dir, filepath.FromSlash(scaffold.Module), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	source := t.TempDir()
	for _, part := range []string{"sdk", "internal"} {
		if err := os.CopyFS(filepath.Join(source, part),
			os.DirFS(filepath.Join("../..", part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		create(t, filepath.Join(source, name), read(t, filepath.Join("../..", name)))
	}
	archive, err := os.Create(filepath.Join(versions, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if err := zip.CreateFromDir(archive, module.Version{Path: scaffold.Module, Version: version},
		source); err != nil {
		t.Fatal(err)
	}
	create(t, filepath.Join(versions, version+".mod"), read(t, "../../go.mod"))
	create(t, filepath.Join(versions, version+".info"), fmt.Sprintf(`{"Version": %q}`, version))
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestModuleOfAPublishedVersion checks that for a published version of cage, only cage is
// downloaded, and that without a network, a notice is returned.
func TestModuleOfAPublishedVersion(t *testing.T) {
	testlevel.Long(t, "it lists and links modules")
	const version = "v0.123.0"
	t.Setenv("GOMODCACHE", bareModules(t))
	t.Setenv("GONOSUMDB", scaffold.Module)
	t.Setenv("GOFLAGS", "-trimpath -modcacherw")
	for _, c := range []struct{ name, proxy string }{
		{"no network", "off"}, {"published", "file://" + publish(t, version)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOPROXY", c.proxy)
			dir := t.TempDir()
			tool, err := gotool.Find(t.Context(), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := scaffold.Plugin{Kind: "quantizer", Name: "rounder", Parent: dir, Version: version}
			_, notice, err := p.Write(t.Context(), nil)
			if err != nil || (notice != nil) != (c.proxy == "off") {
				t.Fatalf("notice %v, error %v", notice, err)
			}
			dir = p.Path()
			text := read(t, filepath.Join(dir, "go.mod"))
			if !strings.Contains(text, "\nrequire "+scaffold.Module+" "+version+"\n") ||
				strings.Contains(text, "replace") {
				t.Errorf("go.mod is\n%s", text)
			}
			if notice != nil {
				return
			}
			if _, err := tool.Output(t.Context(), dir, "vet", "."); err != nil {
				t.Error(err)
			}
		})
	}
}

// modules lists the modules from which this module is built and tested.
var modules struct {
	sync.Once
	list string
}

// bareModules makes a module cache with only the modules from which this module is built and
// tested, as after make test on a new machine. The user's cache may contain any other module, and
// hide that a command needs more.
func bareModules(t *testing.T) (dir string) {
	t.Helper()
	full := goOut(t, "env", "GOMODCACHE")
	modules.Do(func() {
		modules.list = goOut(t, "list", "-deps", "-test", "-f",
			"{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}{{end}}{{end}}", "./...")
	})
	dir = t.TempDir()
	linked := map[string]bool{}
	for _, name := range strings.Fields(modules.list) {
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

// linkModule links one module of a cache, PATH@VERSION, into another.
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
		return // it is not downloaded with the module
	}
	if err := os.Symlink(filepath.Join(from, name), target); err != nil {
		t.Fatal(err)
	}
}

// goOut returns the output of the go command at the root of the repository.
func goOut(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	cmd.Env = append(cmd.Environ(), "GOWORK=off") // only this module, as it is published
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, messages.String())
	}
	return strings.TrimSpace(string(out))
}
