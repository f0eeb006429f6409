package main

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

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train/plugin"
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

func newPluginsNew() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new KIND NAME",
		Short: "Write a small complete plugin with its test, to start from",
		Long: `Write the Go source of a small complete plugin and of its test into a new directory
NAME. KIND is quantizer or optimizer. Inside a Go module that requires
github.com/cage-qat/cage the directory becomes a package of it; elsewhere it becomes a
module of its own, with a go.mod.`,
		Args: exactly(2, "quantizer or optimizer, and a name"),
	}
	dir := cmd.Flags().String("dir", ".", "existing directory in which NAME is made")
	source := cmd.Flags().String("sdk", "", "make a module of its own that takes the sdk from this directory, a copy of cage's source")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := scaffold{kind: args[0], name: args[1], parent: *dir, source: *source}
		if err := s.check(); err != nil {
			return usageError{err}
		}
		if err := s.checkPlace(); err != nil {
			return err
		}
		log, err := newLogger(cmd, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		tool, err := gotool.Find(cmd.Context(), s.parent, plugin.Inform(log))
		if err != nil {
			return err
		}
		notice, err := s.write(cmd.Context(), tool)
		if err != nil {
			return err
		}
		if notice != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "go mod tidy is still to be run in %s; or remove it and give --sdk DIR, a copy of cage's source: %v\n", s.path(), notice)
		}
		path := s.path()
		if !filepath.IsAbs(path) {
			path = "./" + filepath.ToSlash(path) // without a slash it would be taken for a name
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), nextSteps, path, s.kind, strings.Join(tool.Settings(), " "))
		return err
	}
	return cmd
}

// The settings are those with which cage builds plugins and the Makefile builds cage.
// With others, go test would compile all libraries once more.
const nextSteps = `wrote %[1]s
  %[3]s go -C %[1]s test -trimpath .
  cage plugins show %[1]s
In the TOML file of a run: %[2]s = {plugin = "%[1]s"}
`

// scaffold is a plugin to be written.
type scaffold struct {
	kind, name string
	parent     string
	source     string // the directory of cage's module; empty: a published version
}

// path is the path of the new directory.
func (s scaffold) path() string { return filepath.Join(s.parent, s.name) }

// ignored are names of directories that the go command passes over.
var ignored = []string{"testdata", "vendor"}

// checkPlace tells why the directory cannot be made.
func (s scaffold) checkPlace() error {
	if _, err := os.Lstat(s.path()); err == nil {
		return fmt.Errorf("%s is already there; choose another name, or remove it", s.path())
	}
	if info, err := os.Stat(s.parent); err != nil || !info.IsDir() {
		return fmt.Errorf("there is no directory %s to write %s into", s.parent, s.name)
	}
	return nil
}

// check finds mistakes on the command line.
func (s scaffold) check() error {
	if !slices.Contains(kinds, sdk.Kind(s.kind)) {
		err := fmt.Errorf("unknown kind of plugin %q: use quantizer or optimizer", s.kind)
		if near := schema.Nearest(s.kind, []string{string(kinds[0]), string(kinds[1])}); near != "" {
			err = fmt.Errorf("%w; did you mean %s?", err, near)
		}
		return err
	}
	if slices.Contains(ignored, s.name) {
		return fmt.Errorf("plugin name %q: Go ignores directories of this name; choose another", s.name)
	}
	return sdk.Description{Name: s.name}.Check()
}

// write makes the directory with all its files, or leaves nothing behind. notice says
// why the requirements of a new module are not complete yet.
func (s scaffold) write(ctx context.Context, tool *gotool.Tool) (notice, err error) {
	module, err := s.ownModule(ctx, tool)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(s.parent, ".new-plugin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	if err := s.render(scratch); err != nil {
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
	if err := os.Rename(scratch, s.path()); err != nil {
		return nil, err
	}
	return notice, vfs.At(s.parent).SyncDir()
}

// render writes the templates of the kind into dir.
func (s scaffold) render(dir string) error {
	root, err := fs.Sub(templates, "templates/"+s.kind)
	if err != nil {
		return err
	}
	set, err := template.ParseFS(root, "*.tmpl")
	if err != nil {
		return err
	}
	for _, t := range set.Templates() {
		var text bytes.Buffer
		if err := t.Execute(&text, map[string]string{"Name": s.name}); err != nil {
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
