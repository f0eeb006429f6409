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

// completer lists the words that may stand where a word with this prefix has been typed.
type completer func(prefix string) ([]string, cobra.ShellCompDirective)

// argumentCompleters are the completers of the arguments of commands, by their paths.
var argumentCompleters = map[string]completer{
	"train": tomlFiles, "bench step": tomlFiles, "study run": tomlFiles, "study report": tomlFiles, "study status": tomlFiles,
	"study keep": tomlFiles, "study check": tomlFiles,
	"eval": runDirs, "score": runDirs, "generate": runDirs, "chat": runDirs, "ruler": runDirs, "export": runDirs, "quantize": runDirs, "verify": runDirs, "plot": runDirs,
	"compare": runDirs, "fit": runDirs, "runs show": runDirs, "runs diff": runDirs, "runs export": runDirs, "checkpoint show": runDirs,
	"checkpoint verify": runDirs,
	"plugins show":      pluginNames, "plugins test": pluginNames,
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
