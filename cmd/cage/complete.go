package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
)

// What a shell completes when Tab is pressed, after `cage completion bash` (or zsh, fish, powershell) told it how. Nothing
// that takes long is asked: no plugin is started.

// completer lists what may stand in the place of a word that has begun.
type completer func(begun string) ([]string, cobra.ShellCompDirective)

// ofArguments are the completers of the arguments of commands, by their paths.
var ofArguments = map[string]completer{
	"train": tomlFiles, "bench step": tomlFiles, "study run": tomlFiles, "study report": tomlFiles, "study status": tomlFiles,
	"study keep": tomlFiles, "study check": tomlFiles,
	"eval": runs, "score": runs, "generate": runs, "chat": runs, "ruler": runs, "export": runs, "quantize": runs, "verify": runs, "plot": runs,
	"compare": runs, "fit": runs, "runs show": runs, "runs diff": runs, "runs export": runs, "checkpoint show": runs,
	"checkpoint verify": runs,
	"plugins show":      pluginNames, "plugins test": pluginNames,
}

// ofFlags are the completers of flags, by name, whatever the command.
var ofFlags = map[string]completer{
	"quantizer": pluginNames,
	"to":        words(export.Formats()),
	"device":    words([]string{"cpu", "cuda"}),
	"tasks":     listed(tasks.Names()),
	"log-level": words([]string{"trace", "debug", "info", "warn", "error", "off"}),
}

// completing gives a command and those below it their completers.
func completing(cmd *cobra.Command) *cobra.Command {
	path := strings.TrimPrefix(cmd.CommandPath(), "cage ")
	if c := ofArguments[path]; c != nil {
		cmd.ValidArgsFunction = c.cobra
	}
	for name, c := range ofFlags {
		if cmd.LocalFlags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, c.cobra) // fails only where there is one already
		}
	}
	if path == "train" {
		_ = cmd.RegisterFlagCompletionFunc("set", completer(settings).cobra)
	}
	for _, below := range cmd.Commands() {
		completing(below)
	}
	return cmd
}

// cobra is the completer as the library wants it, without words that begin otherwise.
func (c completer) cobra(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	list, directive := c(begun)
	if directive&cobra.ShellCompDirectiveFilterFileExt == 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(word string) bool { return !strings.HasPrefix(word, begun) })
	}
	return list, directive
}

func tomlFiles(string) ([]string, cobra.ShellCompDirective) {
	return []string{"toml"}, cobra.ShellCompDirectiveFilterFileExt
}

// words completes one of a few words.
func words(list []string) completer {
	return func(string) ([]string, cobra.ShellCompDirective) { return list, cobra.ShellCompDirectiveNoFileComp }
}

// listed completes words that are separated by commas.
func listed(list []string) completer {
	return func(begun string) ([]string, cobra.ShellCompDirective) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		var out []string
		for _, word := range list {
			if !slices.Contains(strings.Split(before, ","), word) {
				out = append(out, before+word)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// runs completes run directories below the usual ones. Where none fits, directories are completed.
func runs(begun string) ([]string, cobra.ShellCompDirective) {
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
	if !slices.ContainsFunc(out, func(name string) bool { return strings.HasPrefix(name, begun) }) {
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

// settings completes KEY= and, where the value is one of a few words, KEY=VALUE.
func settings(begun string) ([]string, cobra.ShellCompDirective) {
	name, _, value := strings.Cut(begun, "=")
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
