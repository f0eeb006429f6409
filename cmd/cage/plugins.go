package main

import (
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
		Short: "List, describe, test and write quantizer and optimizer plugins",
		Long: `List and describe plugins. A plugin is found by a path given directly, in the
directories of CAGE_PLUGIN_PATH, in plugins/ beside the cage executable, and in
plugins/ in the working directory. A directory that holds a Go main package is built
on demand. A plugin is a program that runs with your rights. It has 10 s to start and for
each answer, or as long as CAGE_PLUGIN_TIMEOUT says, such as 1m.`,
	}, newPluginsList(), newPluginsShow(), newPluginsNew(), surviveSIGPIPE(newPluginsTest()),
		newPluginsProgram())
}

func newPluginsList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the plugins that can be found",
		Args: exactly(0, "no arguments")}
	return withAnswer(cmd, func(cmd *cobra.Command, _ []string) (*answer, error) {
		finder, opts, err := newFinder(cmd)
		if err != nil {
			return nil, err
		}
		var list []pluginListing
		rows := [][]string{{"name", "kind", "what it is"}}
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
			return nil, fmt.Errorf("no plugins found; looked in %s", strings.Join(finder.Dirs, ", "))
		}
		return tableAnswer(list, rows), nil
	})
}

func newPluginsShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show NAME", Short: "Describe a plugin and its parameters",
		Args: exactly(1, "the name or path of one plugin")}
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
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
		return textAnswer(list, "%s", strings.Join(texts, "\n")), nil
	})
}

// startAsEach finds a plugin by name or path, starts it as each of these kinds that it serves, and
// calls do. It fails if the plugin serves none of them, or fails to start as one of them.
// With quiet the plugin logs errors only, unless there is --log-level.
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
			if refused == nil {
				refused = err
			}
			continue
		}
		if err != nil {
			return err
		}
		served = true
		err = do(client)
		client.Close()
		if err != nil {
			return err
		}
	}
	if served {
		return nil
	}
	return refused
}

// escapedParameters escapes characters that would break the table of parameters.
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

// newFinder returns a finder of plugins, and the options to start them with. Both log to the
// standard error of the command.
func newFinder(cmd *cobra.Command) (*plugin.Finder, plugin.Options, error) {
	log := newLogger(cmd)
	finder, err := plugin.NewFinder()
	if err != nil {
		return nil, plugin.Options{}, err
	}
	finder.Notify = plugin.Inform(log)
	return finder, plugin.Options{Logger: log}, nil
}

// firstSentence returns the text up to its first full stop; that of "et al." does not count.
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

// parameter is a plugin parameter as printed in JSON. JSON has no infinity, so an infinite bound is
// left out.
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
		Long: `Write the source of a small complete plugin and of its test into a new directory
NAME. KIND is quantizer or optimizer. The language is Go, or Python with --language
python or jax, which needs the package of sdk/python. Inside a Go module that requires
github.com/cage-qat/cage the directory becomes a package of it; elsewhere it becomes a
module of its own, with a go.mod.`,
		Args: exactly(2, "quantizer or optimizer, and a name"),
	}
	dir := cmd.Flags().String("dir", ".", "existing directory in which NAME is made")
	language := cmd.Flags().String("language", scaffold.Languages[0],
		"of the plugin: go, python or jax")
	source := cmd.Flags().String("sdk", "",
		"make a module of its own that takes the sdk from this directory, a copy of cage's source")
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
		if notice != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "go mod tidy is still to be run in %s; or remove it and "+
				"give --sdk DIR, a copy of cage's source: %v\n", s.Path(), notice)
		}
		// These are the settings with which cage builds plugins and the Makefile builds cage. With
		// other settings, go test would recompile all libraries.
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

// named returns path with a slash, because without one it would be parsed as a plugin's name.
func named(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "./" + filepath.ToSlash(path)
}
