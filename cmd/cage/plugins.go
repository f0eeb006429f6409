package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/plugin"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/sdk"
)

func newPlugins() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "plugins",
		Short: "List, describe, test and write quantizer and optimizer plugins",
		Long: `List and describe plugins. A plugin is found by a path given directly, in the
directories of CAGE_PLUGIN_PATH, in plugins/ beside the cage executable, and in
plugins/ in the working directory. A directory that holds a Go main package is built
on demand. A plugin is a program that runs with your rights; on Linux it may use half of
the memory, or as much as CAGE_PLUGIN_MEMORY says, such as 8G.`,
	})
	cmd.AddCommand(newPluginsList(), newPluginsShow(), newPluginsNew(), outlasts(newPluginsTest()))
	return cmd
}

func newPluginsList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the plugins that can be found", Args: exactly(0, "no arguments")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		finder, opts, err := newFinder(cmd)
		if err != nil {
			return err
		}
		var list []listing
		rows := [][]string{{"name", "kind", "what it is"}}
		for _, l := range finder.List(cmd.Context(), opts) {
			item := listing{Name: l.Name, Path: l.Path, Kind: l.Kind}
			row := []string{l.Name, string(l.Kind), firstSentence(l.Description.Doc)}
			if l.Err != nil {
				item.Error = l.Err.Error()
				row[2] = "cannot be used: " + l.Err.Error()
			} else {
				item = item.describe(l.Description)
			}
			list, rows = append(list, item), append(rows, row)
		}
		if *asJSON {
			return printJSON(cmd, list)
		}
		if len(list) == 0 {
			return fmt.Errorf("no plugins found; looked in %s", strings.Join(finder.Dirs, ", "))
		}
		return table(cmd.OutOrStdout(), rows)
	}
	return cmd
}

func newPluginsShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show NAME", Short: "Describe a plugin and its parameters", Args: exactly(1, "the name or path of one plugin")}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		finder, opts, err := newFinder(cmd)
		if err != nil {
			return err
		}
		exe, err := finder.Find(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		var list []listing
		var texts []string
		var failed error
		for _, kind := range []sdk.Kind{sdk.KindQuantizer, sdk.KindOptimizer} {
			client, err := plugin.Start(cmd.Context(), exe, kind, opts)
			if err != nil {
				failed = err
				continue
			}
			d := client.Description()
			list = append(list, listing{Name: d.Name, Path: client.Path(), Kind: kind}.describe(d))
			texts = append(texts, fmt.Sprintf("%s (%s, %s)\n%s", d.Name, kind, client.Path(), oneLineParameters(d)))
			client.Close()
		}
		if len(list) == 0 {
			return failed
		}
		if *asJSON {
			return printJSON(cmd, list)
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), strings.Join(texts, "\n"))
		return err
	}
	return cmd
}

// oneLineParameters escapes what would break the table of parameters.
func oneLineParameters(d sdk.Description) sdk.Description {
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

func newFinder(cmd *cobra.Command) (*plugin.Finder, plugin.Options, error) {
	log, err := newLogger(cmd, nil)
	if err != nil {
		return nil, plugin.Options{}, err
	}
	finder, err := plugin.NewFinder()
	if err != nil {
		return nil, plugin.Options{}, err
	}
	finder.Notify = plugin.Inform(log)
	return finder, plugin.Options{Logger: log}, nil
}

// firstSentence is the text up to the first full stop that ends a sentence, which
// one after "al" does not.
func firstSentence(text string) string {
	for i := range len(text) - 1 {
		if text[i:i+2] == ". " && !strings.HasSuffix(text[:i], " al") {
			return text[:i+1]
		}
	}
	return text
}
