package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/plugin"
)

// releases is where archives with everything are.
const releases = "https://" + modulePath + "/releases"

// lacks says what this executable should have and has not, each with how to get it: go
// install makes one without plugins, and without the processor's vector instructions
// unless it is told to use them.
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

// lacking is what this executable lacks.
func lacking() []string {
	finder, err := plugin.NewFinder()
	return lacks(engine.LacksSIMD(), err == nil && !finder.Any())
}

// needy are the commands that compute, or that need plugins.
var needy = []string{"train", "study run", "eval", "generate", "bench", "plugins list"}

// warnOfLacks tells before a command what its executable lacks.
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

// bullets are lines of the output of cage version.
func bullets(name string, list []string) (text string) {
	for _, item := range list {
		text += fmt.Sprintf("%s: %s\n", name, item)
	}
	return text
}
