package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/plugin/scaffold"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/sdk"
)

// kinds lists the kinds of plugins, in display order.
var kinds = []sdk.Kind{sdk.KindQuantizer, sdk.KindOptimizer}

func newPlugins() *cobra.Command {
	return group(&cobra.Command{
		Use:   "plugins",
		Short: "List, describe, test, apply and write quantizer and optimizer plugins",
		Long: `List and describe plugins. A plugin is given by a path, or by a name that is looked up in
the directories of CAGE_PLUGIN_PATH, in plugins/ next to the cage executable, and in
plugins/ in the working directory. The directory of a Go main package is built on demand.
Plugins run with your permissions. While they start, or answer a request, they must make
progress within 10 s, or within CAGE_PLUGIN_TIMEOUT (such as 1m).`,
	}, newPluginsList(), newPluginsShow(), newPluginsNew(), surviveSIGPIPE(newPluginsTest()),
		newPluginsProgram(), newPluginsApply())
}

func newPluginsList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the plugins that are found by name",
		Args: exactly(0, "no arguments")}
	return withOutput(cmd, func(cmd *cobra.Command, _ []string) (*output, error) {
		finder, opts, err := newFinder(cmd)
		if err != nil {
			return nil, err
		}
		var list []pluginListing
		rows := [][]string{{"name", "kind", "description"}}
		for _, l := range finder.List(cmd.Context(), opts) {
			item := pluginListing{Name: l.Name, Path: l.Path, Kind: l.Kind}
			row := []string{l.Name, string(l.Kind), firstSentence(l.Description.Doc)}
			if l.Err != nil {
				item.Error = l.Err.Error()
				row[2] = "cannot be used: " + l.Err.Error()
			} else {
				item = item.describe(l.Description)
			}
			list, rows = append(list, item), append(rows, row)
		}
		if len(list) == 0 && !wantsJSON(cmd) {
			return nil, fmt.Errorf("there are no plugins in %s", strings.Join(finder.Dirs, ", "))
		}
		return tableOutput(list, rows), nil
	})
}

func newPluginsShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show NAME", Short: "Describe a plugin and its parameters",
		Args: exactly(1, "the name or path of one plugin")}
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		var list []pluginListing
		var texts []string
		err := startAsEach(cmd, args[0], kinds, false, func(client *plugin.Client) error {
			d, path, kind := client.Description(), client.Path(), client.Kind()
			list = append(list, pluginListing{Name: d.Name, Path: path, Kind: kind}.describe(d))
			texts = append(texts,
				fmt.Sprintf("%s (%s, %s)\n%s", d.Name, kind, path, escapedParameters(d)))
			return nil
		})
		if err != nil {
			return nil, err
		}
		return textOutput(list, "%s", strings.Join(texts, "\n")), nil
	})
}

// startAsEach finds a plugin by name or path, starts it as each of the given kinds that it
// implements, and calls do each time. It returns an error if the plugin implements none of them, or
// if a start fails. If quiet is set, the plugin logs only errors, unless --log-level is given.
func startAsEach(cmd *cobra.Command, name string, kinds []sdk.Kind, quiet bool,
	do func(*plugin.Client) error) error {
	ctx := cmd.Context()
	finder, opts, err := newFinder(cmd)
	if err != nil {
		return err
	}
	exe, err := finder.Find(ctx, name)
	if err != nil {
		return err
	}
	if quiet && !cmd.Flags().Changed("log-level") {
		opts.Logger.SetLevel(hclog.Error)
	}
	served := false
	var refused error
	for _, kind := range kinds {
		client, err := plugin.Start(ctx, exe, kind, opts)
		if errors.Is(err, plugin.ErrKind) {
			refused = cmp.Or(refused, err)
			continue
		}
		if err == nil {
			served, err = true, do(client)
			client.Close()
		}
		if err != nil {
			return err
		}
	}
	if served {
		return nil
	}
	return refused
}

// escapedParameters returns d with the characters escaped that would break the table of parameters.
func escapedParameters(d sdk.Description) sdk.Description {
	d.Parameters = slices.Clone(d.Parameters)
	for i := range d.Parameters {
		p := &d.Parameters[i]
		p.Doc = safetext.Line(p.Doc)
		if text, ok := p.Default.(string); ok {
			p.Default = safetext.Line(text)
		}
		p.Choices = slices.Clone(p.Choices)
		for j, choice := range p.Choices {
			p.Choices[j] = safetext.Line(choice)
		}
	}
	return d
}

// newFinder returns a plugin finder and the options for starting plugins. Both log to the command's
// standard error.
func newFinder(cmd *cobra.Command) (*plugin.Finder, plugin.Options, error) {
	finder, log, err := plugin.Defaults(nil, newLogger(cmd))
	return finder, plugin.Options{Logger: log}, err
}

// firstSentence returns text up to the first full stop, ignoring the one in "et al.".
func firstSentence(text string) string {
	for i := range len(text) - 1 {
		if text[i:i+2] == ". " && !strings.HasSuffix(text[:i], " al") {
			return text[:i+1]
		}
	}
	return text
}

type pluginListing struct {
	Name       string      `json:"name"`
	Path       string      `json:"path"`
	Kind       sdk.Kind    `json:"kind,omitempty"`
	Version    string      `json:"version,omitempty"`
	Doc        string      `json:"doc,omitempty"`
	Parameters []parameter `json:"parameters,omitempty"`
	Claims     []sdk.Claim `json:"claims,omitempty"`
	Error      string      `json:"error,omitempty"`
}

// parameter describes a plugin parameter in JSON. Infinite bounds are omitted, because JSON has no
// infinity.
type parameter struct {
	Name    string   `json:"name"`
	Type    sdk.Type `json:"type"`
	Default any      `json:"default"`
	Min     *float64 `json:"min,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	Choices []string `json:"choices,omitempty"`
	Doc     string   `json:"doc"`
}

func (l pluginListing) describe(d sdk.Description) pluginListing {
	l.Version, l.Doc, l.Claims = d.Version, d.Doc, d.Claims
	for _, p := range d.Parameters {
		out := parameter{Name: p.Name, Type: p.Type, Default: p.Default, Choices: p.Choices, Doc: p.Doc}
		number := p.Type == sdk.TypeInt || p.Type == sdk.TypeFloat
		if number && !math.IsInf(p.Min, 0) {
			out.Min = &p.Min
		}
		if number && !math.IsInf(p.Max, 0) {
			out.Max = &p.Max
		}
		l.Parameters = append(l.Parameters, out)
	}
	return l
}

func newPluginsNew() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new KIND NAME",
		Short: "Write a small complete plugin with its test, to start from",
		Long: `Write the source of a small complete plugin and its test to a new directory NAME. KIND is
quantizer or optimizer. The language is Go, or with --language python or jax Python,
which needs the package in sdk/python. Inside a Go module that requires
github.com/cage-qat/cage the directory is a package of that module; elsewhere it becomes a
module with its own go.mod.`,
		Args: exactly(2, "quantizer or optimizer, and a name"),
	}
	dir := cmd.Flags().String("dir", ".", "existing directory in which NAME is created")
	language := cmd.Flags().String("language", scaffold.Languages[0],
		"language of the plugin: go, python or jax")
	source := cmd.Flags().String("sdk", "",
		"create a separate module that uses the sdk in this directory, a copy of cage's source")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := scaffold.Plugin{
			Kind: args[0], Name: args[1], Parent: *dir, Source: *source, Language: *language}
		if err := s.Check(); err != nil {
			return usageError{err}
		}
		if err := s.CheckPlace(); err != nil {
			return err
		}
		settings, notice, err := s.Write(cmd.Context(), plugin.Inform(newLogger(cmd)))
		if err != nil {
			return err
		}
		if notice != nil && strings.Contains(notice.Error(), "go.work") {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is below a go.work that does not list it: run "+
				"go work use . there, or set GOWORK=off\n", s.Path())
		} else if notice != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "go mod tidy failed in %s: run it again there, or remove the "+
				"directory and give --sdk DIR, a copy of cage's source: %v\n", s.Path(), notice)
		}
		// Use the settings with which cage builds plugins and the Makefile builds cage. With
		// others, go test would recompile all libraries.
		test := fmt.Sprintf("%s go -C %s test -trimpath .", settings, named(s.Path()))
		if s.Language != scaffold.Languages[0] {
			test = fmt.Sprintf("pytest %s && cage plugins test %s",
				named(s.Path()), named(s.Executable()))
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), `wrote %[1]s
  %[3]s
  cage plugins show %[4]s
In the TOML file of a run: %[2]s = {plugin = "%[4]s"}
`, named(s.Path()), s.Kind, test, named(s.Executable()))
		return err
	}
	return cmd
}

// named returns path with a slash, so that it is not taken for a plugin name.
func named(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "./" + filepath.ToSlash(path)
}
