package main

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/plugin/scaffold"
)

// version is the release version, set by the linker. It is empty in other builds.
var version = ""

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version and how it was built",
		Args: exactly(0, "no arguments")}
	kind := cmd.Flags().String("device", device.CPU, "device to open and describe: cpu or cuda")
	return withOutput(cmd, func(*cobra.Command, []string) (*output, error) {
		var warnings []string
		dev, err := engine.Open(*kind, engine.Options{Warn: func(message string, details ...any) {
			for i := 1; i < len(details); i += 2 { // details are keys and values
				message += fmt.Sprintf(": %v", details[i])
			}
			warnings = append(warnings, message)
		}})
		if err != nil {
			return nil, err
		}
		defer dev.Close()
		v := struct {
			Version string           `json:"version"`
			Build   engine.BuildInfo `json:"build"`
			Devices []string         `json:"devices"`
			Device  string           `json:"device"`
			Missing []string         `json:"lacks,omitempty"`
		}{buildVersion(), dev.BuildInfo(), engine.Built(), dev.Description(),
			append(missingParts(), warnings...)}
		missing := ""
		for _, what := range v.Missing {
			missing += "missing: " + what + "\n"
		}
		return textOutput(v, "cage %s\n%s\ndevices: %v\ndevice: %s\n%s",
			v.Version, v.Build, v.Devices, v.Device, missing), nil
	})
}

// buildVersion returns the release version or, in other builds, the source revision.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if revision == "" {
		return info.Main.Version
	}
	return revision + dirty
}

const releases = "https://" + scaffold.Module + "/releases"

// missingParts describes what this executable lacks, and how to get it. After go install there are
// no plugins, and no vector instructions unless GOEXPERIMENT=simd was set.
func missingParts() (list []string) {
	if loops.LacksVectors() {
		list = append(list, "this cage was built without vector instructions (SIMD) and is several "+
			"times slower on the CPU. Build it with 'make build', or with GOEXPERIMENT=simd set "+
			"for go install, or download a release from "+releases)
	}
	if finder, err := plugin.NewFinder(); err == nil && len(finder.Names()) == 0 {
		list = append(list, "there are no plugins beside this executable or in "+
			plugin.PathVariable+": build them with 'make build' in cage's source, or download a "+
			"release from "+releases)
	}
	return list
}

// warnedCommands are the commands that need plugins, or are slow without vector instructions.
var warnedCommands = []string{
	"train", "study run", "eval", "generate", "chat", "bench", "plugins list",
}

// prepare runs before every command: it checks the flags that all commands share, watches the
// parent process if --lifeline is set, and warns about missing parts before warnedCommands.
func prepare(cmd *cobra.Command, _ []string) error {
	level, _ := cmd.Flags().GetString("log-level")
	if hclog.LevelFromString(level) == hclog.NoLevel {
		return usagef("--log-level %q: want trace, debug, info, warn, error or off", level)
	}
	if grace, err := cmd.Flags().GetDuration(lifeline); err == nil { // the command has the flag
		watchParent(grace)
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	warned := func(c string) bool { return path == c || strings.HasPrefix(path, c+" ") }
	if !slices.ContainsFunc(warnedCommands, warned) {
		return nil
	}
	for _, what := range missingParts() {
		newLogger(cmd).Warn(what)
	}
	return nil
}
