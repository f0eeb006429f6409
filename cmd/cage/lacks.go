package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/plugin/scaffold"
)

// releases is the address of complete archives.
const releases = "https://" + scaffold.Module + "/releases"

// lacks lists what this executable should have and has not, each with how to get it. One
// made by go install has no plugins, and no vector instructions of the processor unless
// GOEXPERIMENT asked for them.
func lacks(noSIMD, noPlugins bool) (list []string) {
	if noSIMD {
		list = append(list, "this cage was built without vector instructions (SIMD): on the CPU it computes several times slower. "+
			"Build it with 'make build', or with GOEXPERIMENT=simd set for go install, or take an archive from "+releases)
	}
	if noPlugins {
		list = append(list, "there are no plugins beside this cage or in "+plugin.PathVariable+": "+
			"build them with 'make build' in cage's source, or take an archive from "+releases)
	}
	return list
}

// lacking lists what this executable lacks.
func lacking() []string {
	finder, err := plugin.NewFinder()
	return lacks(engine.LacksSIMD(), err == nil && !finder.Any())
}

// needy are the commands that compute or need plugins.
var needy = []string{"train", "study run", "eval", "generate", "chat", "bench", "plugins list"}

// warnOfLacks warns, before a needy command runs, of what the executable lacks.
func warnOfLacks(cmd *cobra.Command, _ []string) error {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if !slices.ContainsFunc(needy, func(c string) bool { return path == c || strings.HasPrefix(path, c+" ") }) {
		return nil
	}
	log, err := newLogger(cmd, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	for _, what := range lacking() {
		log.Warn(what)
	}
	return nil
}
