// Package scaffold writes the source of a new plugin, to start from: a small complete one with its test, as a package of the
// module around it or as a module of its own.
package scaffold

import (
	"bytes"
	"context"
	"embed"
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

// templates holds a directory for each kind of plugin. A template is named after the file
// that it becomes, with .tmpl added.
//
//go:embed templates
var templates embed.FS

// Plugin is a plugin to be written.
type Plugin struct {
	Kind, Name string
	Parent     string // existing directory in which a directory of that name is made
	Source     string // the directory of cage's module; empty: a published version
	Version    string // the published version; empty: that of this executable
}

// Path is the path of the new directory.
func (s Plugin) Path() string { return filepath.Join(s.Parent, s.Name) }

// ignored are names of directories that the go command passes over.
var ignored = []string{"testdata", "vendor"}

// CheckPlace tells why the directory cannot be made.
func (s Plugin) CheckPlace() error {
	if _, err := os.Lstat(s.Path()); err == nil {
		return fmt.Errorf("%s is already there; choose another name, or remove it", s.Path())
	}
	if info, err := os.Stat(s.Parent); err != nil || !info.IsDir() {
		return fmt.Errorf("there is no directory %s to write %s into", s.Parent, s.Name)
	}
	return nil
}

// Check finds mistakes on the command line.
func (s Plugin) Check() error {
	kinds := []string{string(sdk.KindQuantizer), string(sdk.KindOptimizer)}
	if !slices.Contains(kinds, s.Kind) {
		err := fmt.Errorf("unknown kind of plugin %q: use quantizer or optimizer", s.Kind)
		if near := schema.Nearest(s.Kind, kinds); near != "" {
			err = fmt.Errorf("%w; did you mean %s?", err, near)
		}
		return err
	}
	if slices.Contains(ignored, s.Name) {
		return fmt.Errorf("plugin name %q: Go ignores directories of this name; choose another", s.Name)
	}
	return sdk.Description{Name: s.Name}.Check()
}

// Write makes the directory with all its files, or leaves nothing behind. settings are the variables of the environment with
// which the go command compiles no library once more; notice says why the requirements of a new module are not complete yet.
// inform is told what is waited for.
func (s Plugin) Write(ctx context.Context, inform func(string)) (settings string, notice, err error) {
	tool, err := gotool.Find(ctx, s.Parent, inform)
	if err != nil {
		return "", nil, err
	}
	notice, err = s.write(ctx, tool)
	return strings.Join(tool.Settings(), " "), notice, err
}

func (s Plugin) write(ctx context.Context, tool *gotool.Tool) (notice, err error) {
	module, err := s.ownModule(ctx, tool)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(s.Parent, ".new-plugin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	if err := s.Render(scratch); err != nil {
		return nil, err
	}
	if module != nil {
		if notice, err = module.write(ctx, tool, scratch); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(scratch, 0o755); err != nil { // as made it is the user's alone
		return nil, err
	}
	if err := os.Rename(scratch, s.Path()); err != nil {
		return nil, err
	}
	return notice, vfs.At(s.Parent).SyncDir()
}

// Render writes the templates of the kind into dir.
func (s Plugin) Render(dir string) error {
	root, err := fs.Sub(templates, "templates/"+s.Kind)
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
		formatted, err := format.Source(text.Bytes())
		if err != nil {
			return fmt.Errorf("template %s: %w", t.Name(), err)
		}
		if err := atomicfile.WriteBytes(vfs.At(dir).Join(strings.TrimSuffix(t.Name(), ".tmpl")), formatted); err != nil {
			return err
		}
	}
	return nil
}
