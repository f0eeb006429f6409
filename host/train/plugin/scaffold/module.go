package scaffold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/gotool"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// Module is the path of the module that contains package sdk.
const Module = "github.com/cage-qat/cage"

type pluginModule struct {
	name    string // of the plugin
	version string // required version of cage's module
	source  string // absolute directory that replaces cage's module; empty: none
}

// ownModule returns the module to create for the plugin, or nil if the new directory is inside a
// module that already requires package sdk.
func (s Plugin) ownModule(ctx context.Context, tool *gotool.Tool) (*pluginModule, error) {
	if s.Source != "" {
		return s.replaced()
	}
	around, err := tool.Output(ctx, s.Parent, "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	if len(around) == 0 || string(around) == os.DevNull {
		return s.published()
	}
	if _, err := tool.Output(ctx, s.Parent, "list", "-m", Module); err != nil {
		return nil, fmt.Errorf("the module of %s does not require %s: run go get %[2]s there, choose a "+
			"directory outside of it, or give --sdk\n%w", around, Module, err)
	}
	return nil, nil
}

// physical returns the absolute path of a directory, without symbolic links.
func physical(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// replaced returns a module in which the directory s.Source replaces cage's module.
func (s Plugin) replaced() (*pluginModule, error) {
	source, err := physical(s.Source)
	if err != nil {
		return nil, fmt.Errorf("--sdk %s: %w", s.Source, err)
	}
	text, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("--sdk %s: not the source of cage: %w", source, err)
	}
	if path := modfile.ModulePath(text); path != Module {
		return nil, fmt.Errorf("--sdk %s: found module %s, want %s", source, path, Module)
	}
	return &pluginModule{name: s.Name, version: "v0.0.0", source: source}, nil
}

// published returns a module that requires s.Version of cage's module or, if that is not set, the
// version of this executable.
func (s Plugin) published() (*pluginModule, error) {
	if s.Version != "" {
		return &pluginModule{name: s.Name, version: s.Version}, nil
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || !isPublished(info) {
		return nil, errors.New("this cage was not built from a published version: " +
			"give --sdk DIR, the directory of its source, " +
			"or write the plugin inside a module that requires " + Module)
	}
	return &pluginModule{name: s.Name, version: info.Main.Version}, nil
}

// isPublished reports whether an executable was built from a version of cage's module that can be
// downloaded. It is false for pseudo-versions of builds in a working copy, whose commits may not be
// published.
func isPublished(info *debug.BuildInfo) bool {
	version := info.Main.Version
	if info.Main.Path != Module || !strings.HasPrefix(version, "v") || strings.Contains(version, "+") {
		return false
	}
	inCopy := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "vcs.revision"
	})
	return !(inCopy && module.IsPseudoVersion(version))
}

// write creates go.mod and go.sum in dir. notice is the reason why they are incomplete, for example
// that cage's module could not be downloaded; nil if they are complete.
//
// Instead of go mod tidy, which reads the module graph and downloads modules that the build does
// not need, write copies all requirements of cage's module and then removes the unused ones. The
// result is the same, but on a machine where cage was built this needs no network.
func (m pluginModule) write(ctx context.Context, tool *gotool.Tool,
	dir string) (notice, err error) {
	source, sums, notice := m.sdk(ctx, tool, dir)
	if notice != nil {
		return notice, errors.Join(ctx.Err(), m.save(dir, "", nil))
	}
	text, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return nil, err
	}
	of, err := modfile.Parse(filepath.Join(source, "go.mod"), text, nil)
	if err != nil {
		return nil, err
	}
	required := lists.Map(of.Require, func(r *modfile.Require) module.Version { return r.Mod })
	goSum, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		return nil, err
	}
	err = atomicfile.WriteBytes(vfs.At(dir).Join("go.sum"), append([]byte(sums), goSum...))
	if err != nil {
		return nil, err
	}
	if err := m.save(dir, of.Go.Version, required); err != nil {
		return nil, err
	}
	used, notice := tool.Output(ctx, dir, "list", "-deps", "-test",
		"-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	if notice != nil {
		return notice, ctx.Err()
	}
	paths := strings.Fields(string(used))
	required = slices.DeleteFunc(required, func(m module.Version) bool {
		return !slices.Contains(paths, m.Path)
	})
	return nil, m.save(dir, of.Go.Version, required)
}

// sdk returns the directory of the required version of cage's module, which it downloads if
// necessary, and the lines of go.sum for it.
func (m pluginModule) sdk(ctx context.Context, tool *gotool.Tool,
	dir string) (source, sums string, err error) {
	if m.source != "" {
		return m.source, "", nil
	}
	out, err := tool.Output(ctx, dir, "mod", "download", "-json", Module+"@"+m.version)
	if err != nil {
		return "", "", err
	}
	var fetched struct{ Dir, Sum, GoModSum string }
	if err := json.Unmarshal(out, &fetched); err != nil {
		return "", "", fmt.Errorf("go mod download: %w", err)
	}
	sums = fmt.Sprintf("%s %s %s\n%[1]s %[2]s/go.mod %[4]s\n",
		Module, m.version, fetched.Sum, fetched.GoModSum)
	return fetched.Dir, sums, nil
}

// save writes go.mod. If goVersion is "", it omits the go directive.
func (m pluginModule) save(dir, goVersion string, indirect []module.Version) error {
	file := new(modfile.File)
	if err := file.AddModuleStmt("example.com/" + m.name); err != nil {
		return err
	}
	if goVersion != "" {
		if err := file.AddGoStmt(goVersion); err != nil {
			return err
		}
	}
	requires := []*modfile.Require{{Mod: module.Version{Path: Module, Version: m.version}}}
	for _, mod := range indirect {
		requires = append(requires, &modfile.Require{Mod: mod, Indirect: true})
	}
	file.SetRequireSeparateIndirect(requires)
	if m.source != "" {
		at, err := physical(dir) // which lies beside the directory of the plugin
		if err == nil {
			at, err = filepath.Rel(at, m.source)
		}
		if err != nil {
			return err
		}
		if err := file.AddReplace(Module, "", filepath.ToSlash(at), ""); err != nil {
			return err
		}
	}
	file.Cleanup()
	text, err := file.Format()
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(vfs.At(dir).Join("go.mod"), text)
}
