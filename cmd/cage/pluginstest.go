package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	kit "github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// noDevice is the value of --device that runs programs on the reference implementation only.
const noDevice = "none"

func newPluginsTest() *cobra.Command {
	p := pluginTest{}
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Run the conformance tests on a plugin",
		Long: `Run the conformance tests on a plugin in any language. They check its parameters and
their ranges, its programs at many shapes (zeros, extreme values, NaN, gradients, packing,
the descent of optimizers), in float64 and compiled for a device, and the claims in its
description. The exit code is 1 if a check fails.

  cage plugins test quest
  cage plugins test ./my-quantizer --set bits=3
  cage plugins test ./my-optimizer --golden values.json

A golden file holds the results of an independent implementation: for each case the
settings, the inputs, and the expected outputs and gradients, in the format described in
docs/reference/sdk.md. A directory stands for all *.json files in it.`,
		Args: exactly(1, "the name or path of one plugin"),
	}
	flags := cmd.Flags()
	flags.StringVar(&p.golden, "golden", "",
		"also run the cases of a golden `FILE`, or of all in a directory")
	flags.StringVar(&p.device, "device", device.CPU, "`KIND` of device to run compiled programs on: "+
		strings.Join(engine.Kinds(), ", ")+" or none")
	flags.StringArrayVar(&p.sets, "set", nil,
		"fix a parameter of the plugin: `KEY=VALUE` (repeatable)")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		reports, err := p.run(cmd, args[0])
		if len(reports) == 0 {
			return nil, err
		}
		var failed []string
		for _, r := range reports {
			for _, c := range r.Checks {
				if c.Status == sdktest.Fail {
					failed = append(failed, c.Name)
				}
			}
		}
		if len(failed) > 0 {
			err = errors.Join(err, fmt.Errorf("plugin %s: failed: %s", args[0], strings.Join(failed, ", ")))
		}
		return &output{reports, func(w io.Writer) {
			for _, r := range reports {
				fmt.Fprint(w, r)
			}
		}}, err
	})
}

type pluginTest struct {
	golden, device string
	sets           []string
}

func (p *pluginTest) run(cmd *cobra.Command, name string) ([]sdktest.Report, error) {
	if known := append(engine.Kinds(), noDevice); !slices.Contains(known, p.device) {
		return nil, usagef("--device %q: want one of %s", p.device, strings.Join(known, ", "))
	}
	// Check the syntax before the plugin starts.
	if _, err := pluginSettings(p.sets, sdk.Description{}); err != nil {
		return nil, err
	}
	options, kinds, err := p.goldens()
	if err != nil {
		return nil, err
	}
	if p.device != noDevice {
		device, err := engine.Open(p.device, engine.Options{})
		if err != nil {
			return nil, err
		}
		defer device.Close()
		machine := kit.NewDevice(device)
		defer machine.Close()
		options = append(options, sdktest.On(machine))
	}
	var reports []sdktest.Report
	// Start quietly, because the plugin would log the invalid requests of the tests.
	err = startAsEach(cmd, name, kinds, true, func(client *plugin.Client) error {
		settings, err := pluginSettings(p.sets, client.Description())
		if err != nil {
			return err
		}
		report, err := kit.Check(cmd.Context(), client, settings, options)
		if len(report.Checks) > 0 {
			reports = append(reports, report)
		}
		return err
	})
	return reports, err
}

// goldens returns the test cases of the golden files and the plugin kinds to test: the kind of the
// files or, without files, all kinds.
func (p *pluginTest) goldens() ([]sdktest.Option, []sdk.Kind, error) {
	var options []sdktest.Option
	if p.golden == "" {
		return options, kinds, nil
	}
	files := []string{p.golden}
	if info, err := os.Stat(p.golden); err == nil && info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(p.golden, "*.json")); err != nil || len(files) == 0 {
			return nil, nil, fmt.Errorf("--golden %s: the directory has no *.json files", p.golden)
		}
	}
	var found []sdk.Kind
	for _, name := range files {
		file, err := vfs.At(name).ReadFile()
		if err != nil {
			return nil, nil, fmt.Errorf("--golden: %w", err)
		}
		v, err := sdktest.ParseGolden(file)
		if err != nil {
			return nil, nil, fmt.Errorf("--golden %s: %w", name, err)
		}
		options = append(options, sdktest.Golden(v))
		found = append(found, v.Kind)
	}
	slices.Sort(found)
	if found = slices.Compact(found); len(found) > 1 {
		return nil, nil, fmt.Errorf("--golden %s: the files are for quantizers and for optimizers: "+
			"want files for one kind", p.golden)
	}
	return options, found, nil
}

// pluginValues returns the values of all parameters of a plugin, given the settings of --set.
func pluginValues(client *plugin.Client, sets []string) (sdk.Values, error) {
	settings, err := pluginSettings(sets, client.Description())
	if err != nil {
		return sdk.Values{}, err
	}
	return client.Resolve(settings)
}

// pluginSettings parses plugin settings of the form KEY=VALUE. A value is parsed as TOML. If that
// fails, or if the plugin declares KEY as a string, it is plain text.
func pluginSettings(sets []string, d sdk.Description) (map[string]any, error) {
	settings := map[string]any{}
	for _, set := range sets {
		key, text, ok := strings.Cut(set, "=")
		key, text = strings.TrimSpace(key), strings.TrimSpace(text)
		if !ok || key == "" {
			return nil, usagef("--set %q: want KEY=VALUE", set)
		}
		value, err := plaintoml.Value(text)
		_, isText := value.(string)
		if err != nil || !isText && slices.ContainsFunc(d.Parameters, func(p sdk.Parameter) bool {
			return p.Name == key && p.Type == sdk.TypeString
		}) {
			value = text
		}
		settings[key] = value
	}
	return settings, nil
}
