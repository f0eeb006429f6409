package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// addKeys adds a flag for each key, with its default and its description.
func addKeys(cmd *cobra.Command, keys []schema.Key) {
	flags := cmd.Flags()
	for _, k := range keys {
		if k.Default != nil {
			k.Set(k.Default)
		}
		switch to := k.To.(type) {
		case *int:
			flags.IntVar(to, k.FlagName(), *to, k.Doc)
		case *int64:
			flags.Int64Var(to, k.FlagName(), *to, k.Doc)
		case *float64:
			flags.Float64Var(to, k.FlagName(), *to, k.Doc)
		case *bool:
			flags.BoolVar(to, k.FlagName(), *to, k.Doc)
		case *string:
			flags.StringVar(to, k.FlagName(), *to, k.Doc)
		case *[]string:
			flags.StringSliceVar(to, k.FlagName(), *to, k.Doc)
		case *[]int:
			flags.IntSliceVar(to, k.FlagName(), *to, k.Doc)
		default:
			panic(fmt.Sprintf("no flag can be a %T", to))
		}
		if k.Is.Words != nil {
			_ = cmd.RegisterFlagCompletionFunc(k.FlagName(), oneOf(k.Is.Words).cobra) // fails only where there is one already
		}
	}
}

// checkKeys reports the first flag whose value is not in the range of its key. A default is always right.
func checkKeys(cmd *cobra.Command, keys []schema.Key) error {
	for _, k := range keys {
		f := cmd.Flags().Lookup(k.FlagName())
		if _, ok := k.Accept(k.Value()); !ok && f.Changed && f.Value.String() != f.DefValue {
			value := f.Value.String()
			if k.Type() == schema.Text {
				value = strconv.Quote(value)
			}
			return usageError{fmt.Errorf("--%s %s: want %s", k.FlagName(), value, k.Wants())}
		}
	}
	return nil
}

// quantizerFlags are the flags that name a quantizer other than the run's own.
type quantizerFlags struct {
	plugin      string
	sets        []string
	weightsOnly bool
}

func (f *quantizerFlags) add(flags *pflag.FlagSet, usage string) {
	flags.StringVar(&f.plugin, "quantizer", "", usage)
	flags.StringArrayVar(&f.sets, "set", nil, "give a parameter of the quantizer: `KEY=VALUE` (repeatable)")
}

// addReplacement adds the flags of commands that use a run's weights under another quantizer.
func (f *quantizerFlags) addReplacement(flags *pflag.FlagSet) {
	f.add(flags, "quantize weights and activations with the plugin `NAME`, or a path, instead of the run's quantizers; none: nothing")
	flags.BoolVar(&f.weightsOnly, "weights-only", false, "with --quantizer: leave activations in full precision")
}

// params parses the parameters of the plugin.
func (f *quantizerFlags) params() (map[string]any, error) {
	if f.plugin == "" && len(f.sets) > 0 {
		return nil, usageError{fmt.Errorf("--set gives parameters to a quantizer: name it with --quantizer")}
	}
	params := map[string]any{}
	for _, set := range f.sets {
		key, value, ok := strings.Cut(set, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || key == "" || value == "" {
			return nil, usageError{fmt.Errorf("--set %q: want KEY=VALUE", set)}
		}
		params[key] = tomlValue(value)
	}
	return params, nil
}

// replacement is the quantizer that replaces the run's own, nil where that stays.
func (f *quantizerFlags) replacement() (*trained.Quantizer, error) {
	params, err := f.params()
	switch {
	case err != nil:
		return nil, err
	case f.plugin == "" && f.weightsOnly:
		return nil, usageError{fmt.Errorf("--weights-only says what a quantizer is for: name it with --quantizer")}
	case f.plugin == "":
		return nil, nil
	case f.plugin == trained.NoQuantizer && (f.weightsOnly || len(params) > 0):
		return nil, usageError{fmt.Errorf("--quantizer none quantizes nothing: leave --set and --weights-only out")}
	}
	return &trained.Quantizer{Plugin: f.plugin, Params: params, WeightsOnly: f.weightsOnly}, nil
}

// tomlValue parses a TOML value. A text that is none stays a string.
func tomlValue(text string) any {
	value, err := plaintoml.Value(text)
	if err != nil {
		return text
	}
	return value
}

// What a shell completes when Tab is pressed, after `cage completion bash` (or zsh, fish, powershell) told it how. Nothing
// that takes long is asked: no plugin is started.

// completer lists the words that may stand where a word with this prefix has been typed.
type completer func(prefix string) ([]string, cobra.ShellCompDirective)

// argumentCompleters are the completers of the arguments of commands, by their paths.
var argumentCompleters = map[string]completer{
	"train": tomlFiles, "bench step": tomlFiles, "study run": tomlFiles, "study report": tomlFiles, "study status": tomlFiles,
	"study keep": tomlFiles, "study check": tomlFiles,
	"eval": runDirs, "score": runDirs, "generate": runDirs, "chat": runDirs, "ruler": runDirs, "export": runDirs, "quantize": runDirs, "verify": runDirs, "plot": runDirs,
	"compare": runDirs, "fit": runDirs, "runs show": runDirs, "runs diff": runDirs, "runs export": runDirs, "checkpoint show": runDirs,
	"checkpoint verify": runDirs,
	"plugins show":      pluginNames, "plugins test": pluginNames, "plugins program": pluginNames, "plugins run": pluginNames,
}

// flagCompleters are the completers of flags, by name, whatever the command.
var flagCompleters = map[string]completer{
	"quantizer": pluginNames,
	"to":        oneOf(export.Formats()),
	"device":    oneOf([]string{"cpu", "cuda"}),
	"tasks":     commaSeparated(tasks.Names()),
	"log-level": oneOf([]string{"trace", "debug", "info", "warn", "error", "off"}),
}

// addCompleters gives a command and those below it their completers.
func addCompleters(cmd *cobra.Command) *cobra.Command {
	path := strings.TrimPrefix(cmd.CommandPath(), "cage ")
	if c := argumentCompleters[path]; c != nil {
		cmd.ValidArgsFunction = c.cobra
	}
	for name, c := range flagCompleters {
		if cmd.LocalFlags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, c.cobra) // fails only where there is one already
		}
	}
	if path == "train" {
		_ = cmd.RegisterFlagCompletionFunc("set", completer(configKeys).cobra)
	}
	for _, below := range cmd.Commands() {
		addCompleters(below)
	}
	return cmd
}

// cobra is the completer as the library wants it, which lists only words with the prefix.
func (c completer) cobra(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	list, directive := c(prefix)
	if directive&cobra.ShellCompDirectiveFilterFileExt == 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(word string) bool { return !strings.HasPrefix(word, prefix) })
	}
	return list, directive
}

func tomlFiles(string) ([]string, cobra.ShellCompDirective) {
	return []string{"toml"}, cobra.ShellCompDirectiveFilterFileExt
}

// oneOf completes one of a few words.
func oneOf(list []string) completer {
	return func(string) ([]string, cobra.ShellCompDirective) { return list, cobra.ShellCompDirectiveNoFileComp }
}

// commaSeparated completes words that are separated by commas.
func commaSeparated(list []string) completer {
	return func(prefix string) ([]string, cobra.ShellCompDirective) {
		before := prefix[:strings.LastIndexByte(prefix, ',')+1]
		var out []string
		for _, word := range list {
			if !slices.Contains(strings.Split(before, ","), word) {
				out = append(out, before+word)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// runDirs completes run directories below the usual ones. Where none fits, directories are completed.
func runDirs(prefix string) ([]string, cobra.ShellCompDirective) {
	var dirs []string
	for _, dir := range roots {
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	var out []string
	if found, err := rundir.List(context.Background(), dirs...); err == nil {
		for _, r := range found {
			out = append(out, filepath.ToSlash(r.Dir)+"\t"+string(r.State))
		}
	}
	if !slices.ContainsFunc(out, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// pluginNames completes plugins that are found by name, and paths.
func pluginNames(string) ([]string, cobra.ShellCompDirective) {
	finder, err := plugin.NewFinder()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return finder.Names(), cobra.ShellCompDirectiveDefault
}

// configKeys completes KEY= and, where the value is one of a few words, KEY=VALUE.
func configKeys(prefix string) ([]string, cobra.ShellCompDirective) {
	name, _, value := strings.Cut(prefix, "=")
	var out []string
	for _, key := range config.Keys() {
		switch {
		case !value:
			out = append(out, key.Path+"=\t"+key.Doc)
		case key.Path == name:
			for _, word := range key.Values {
				out = append(out, name+"="+word)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
