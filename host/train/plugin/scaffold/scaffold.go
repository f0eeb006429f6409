// Package scaffold writes the source of a new plugin: a small but complete plugin with a test, as a
// package in the enclosing module or as a module of its own.
package scaffold

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/gotool"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
)

// templates holds the directories KIND for plugins in Go, python/KIND, jax/KIND, and pytest/KIND
// with the tests for the last two. Templates have the names of the files they produce, plus .tmpl.
//
//go:embed templates
var templates embed.FS

// Plugin describes the plugin to write.
type Plugin struct {
	Kind, Name string
	Language   string // go, python or jax; empty: go
	Parent     string // existing directory in which the directory Name is created
	Source     string // the directory of cage's module; empty: a published version
	Version    string // the published version; empty: that of this executable
}

// Languages lists the supported languages; the first is the default.
var Languages = []string{"go", "python", "jax"}

// Path returns the path of the directory to create.
func (s Plugin) Path() string { return filepath.Join(s.Parent, s.Name) }

// Executable returns the path with which a run can use the plugin: the directory of a plugin in Go,
// or else the script.
func (s Plugin) Executable() string {
	if s.inGo() {
		return s.Path()
	}
	return filepath.Join(s.Path(), script)
}

// script is the file name of the executable of a plugin in Python.
const script = "plugin.py"

func (s Plugin) inGo() bool { return s.Language == "" || s.Language == "go" }

// ignored lists names of directories that the go command ignores.
var ignored = []string{"testdata", "vendor"}

// CheckPlace returns an error if the plugin's directory exists or its parent does not.
func (s Plugin) CheckPlace() error {
	if _, err := os.Lstat(s.Path()); err == nil {
		return fmt.Errorf("%s already exists; choose another name, or remove it", s.Path())
	}
	if info, err := os.Stat(s.Parent); err != nil || !info.IsDir() {
		return fmt.Errorf("cannot create %s: there is no directory %s", s.Name, s.Parent)
	}
	return nil
}

// Check returns an error if the settings are invalid.
func (s Plugin) Check() error {
	kinds := []string{string(sdk.KindQuantizer), string(sdk.KindOptimizer)}
	if !slices.Contains(kinds, s.Kind) {
		err := fmt.Errorf("unknown kind of plugin %q: use quantizer or optimizer", s.Kind)
		if near := schema.Nearest(s.Kind, kinds); near != "" {
			err = fmt.Errorf("%w; did you mean %s?", err, near)
		}
		return err
	}
	if s.Language != "" && !slices.Contains(Languages, s.Language) {
		return fmt.Errorf("unknown language %q: use %s", s.Language, strings.Join(Languages, ", "))
	}
	if !s.inGo() && s.Source != "" {
		return errors.New("--sdk is for plugins in Go: a plugin in Python imports cage_sdk, " +
			"which pip installs")
	}
	if slices.Contains(ignored, s.Name) {
		return fmt.Errorf("plugin name %q: Go ignores directories of this name; choose another", s.Name)
	}
	return sdk.Description{Name: s.Name}.Check()
}

// Write creates the directory with all its files, or nothing. inform receives progress messages.
// settings are environment variables with which the go command reuses compiled packages. notice is
// the reason why the requirements in a new go.mod are incomplete, or nil.
func (s Plugin) Write(ctx context.Context,
	inform func(string)) (settings string, notice, err error) {
	if !s.inGo() {
		return "", nil, s.place(func(string) error { return nil })
	}
	tool, err := gotool.Find(ctx, s.Parent, inform)
	if err != nil {
		return "", nil, err
	}
	module, err := s.ownModule(ctx, tool)
	if err != nil {
		return "", nil, err
	}
	err = s.place(func(scratch string) (err error) {
		if module != nil {
			notice, err = module.write(ctx, tool, scratch)
		}
		return err
	})
	return strings.Join(tool.Settings(), " "), notice, err
}

// place renders the templates into a scratch directory, calls finish to complete it, and renames it
// to s.Path().
func (s Plugin) place(finish func(scratch string) error) error {
	scratch, err := os.MkdirTemp(s.Parent, ".new-plugin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := s.Render(scratch); err != nil {
		return err
	}
	if err := finish(scratch); err != nil {
		return err
	}
	if !s.inGo() {
		if err := os.Chmod(filepath.Join(scratch, script), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(scratch, 0o755); err != nil { // MkdirTemp creates it with mode 0700
		return err
	}
	if err := os.Rename(scratch, s.Path()); err != nil {
		return err
	}
	return vfs.At(s.Parent).SyncDir()
}

// Render writes the files of the plugin, without go.mod, into dir.
func (s Plugin) Render(dir string) error {
	if s.inGo() {
		return s.render(dir, s.Kind)
	}
	return errors.Join(s.render(dir, s.Language+"/"+s.Kind), s.render(dir, "pytest/"+s.Kind))
}

func (s Plugin) render(dir, from string) error {
	root, err := fs.Sub(templates, "templates/"+from)
	if err != nil {
		return err
	}
	set, err := template.ParseFS(root, "*.tmpl")
	if err != nil {
		return err
	}
	for _, t := range set.Templates() {
		var text bytes.Buffer
		if err := t.Execute(&text, map[string]string{"Name": s.Name}); err != nil {
			return err
		}
		content := text.Bytes()
		if s.inGo() {
			if content, err = format.Source(content); err != nil {
				return fmt.Errorf("template %s: %w", t.Name(), err)
			}
		}
		file := vfs.At(dir).Join(strings.TrimSuffix(t.Name(), ".tmpl"))
		if err := atomicfile.WriteBytes(file, content); err != nil {
			return err
		}
	}
	return nil
}
