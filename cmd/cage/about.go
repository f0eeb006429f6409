package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/config"
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
	cmd := &cobra.Command{Use: "version", Short: "Print the version and how it was built", Args: exactly(0, "no arguments")}
	kind := cmd.Flags().String("device", device.CPU, "device to open and describe: cpu or cuda")
	return answering(cmd, func(*cobra.Command, []string) (*answer, error) {
		dev, err := engine.Open(*kind, engine.Options{})
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
		}{buildVersion(), dev.BuildInfo(), engine.Built(), dev.Description(), lacking()}
		lacks := ""
		for _, what := range v.Lacks {
			lacks += "lacks: " + what + "\n"
		}
		return inWords(v, "cage %s\n%s\ndevices: %v\ndevice: %s\n%s", v.Version, v.Build, v.Devices, v.Device, lacks), nil
	})
}

// buildVersion is the release, or the revision that was built.
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
