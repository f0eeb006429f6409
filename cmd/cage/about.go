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
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/plugin/scaffold"
)

func newConfig() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Document every key of a run's TOML file",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), config.Reference())
			return err
		},
	}
}

// version is set by the linker for releases.
var version = ""

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version and how it was built",
		Args: exactly(0, "no arguments")}
	kind := cmd.Flags().String("device", device.CPU, "device to open and describe: cpu or cuda")
	return withAnswer(cmd, func(*cobra.Command, []string) (*answer, error) {
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
			Lacks   []string         `json:"lacks,omitempty"`
		}{buildVersion(), dev.BuildInfo(), engine.Built(), dev.Description(),
			append(missingParts(), warnings...)}
		lacks := ""
		for _, what := range v.Lacks {
			lacks += "lacks: " + what + "\n"
		}
		return textAnswer(v, "cage %s\n%s\ndevices: %v\ndevice: %s\n%s",
			v.Version, v.Build, v.Devices, v.Device, lacks), nil
	})
}

// buildVersion returns the release, or the revision of the source.
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

// missingParts describes what this executable lacks, and how to get it. A build by go install
// has no plugins, and no vector instructions unless GOEXPERIMENT=simd was set.
func missingParts() (list []string) {
	if engine.LacksSIMD() {
		list = append(list, "this cage was built without vector instructions (SIMD): on the CPU it "+
			"computes several times slower. Build it with 'make build', or with GOEXPERIMENT=simd set "+
			"for go install, or take an archive from "+releases)
	}
	if finder, err := plugin.NewFinder(); err == nil && len(finder.Names()) == 0 {
		list = append(list, "there are no plugins beside this cage or in "+plugin.PathVariable+": "+
			"build them with 'make build' in cage's source, or take an archive from "+releases)
	}
	return list
}

var warnedCommands = []string{
	"train", "study run", "eval", "generate", "chat", "bench", "plugins list",
}

// prepare checks the flags that all commands share. It warns of missing parts before commands that
// compute or need plugins.
func prepare(cmd *cobra.Command, _ []string) error {
	level, _ := cmd.Flags().GetString("log-level")
	if hclog.LevelFromString(level) == hclog.NoLevel {
		return usagef("--log-level %q: use trace, debug, info, warn, error or off", level)
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
