package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/plugin/scaffold"
)

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
		s := scaffold.Plugin{Kind: args[0], Name: args[1], Parent: *dir, Source: *source}
		if err := s.Check(); err != nil {
			return usageError{err}
		}
		if err := s.CheckPlace(); err != nil {
			return err
		}
		log, err := newLogger(cmd, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		settings, notice, err := s.Write(cmd.Context(), plugin.Inform(log))
		if err != nil {
			return err
		}
		if notice != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "go mod tidy is still to be run in %s; or remove it and give --sdk DIR, a copy of cage's source: %v\n", s.Path(), notice)
		}
		path := s.Path()
		if !filepath.IsAbs(path) {
			path = "./" + filepath.ToSlash(path) // without a slash it would be taken for a name
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), nextSteps, path, s.Kind, settings)
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
