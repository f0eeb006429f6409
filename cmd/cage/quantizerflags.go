package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/internal/plaintoml"
)

// quantizerFlags name a quantizer that is not that of a run.
type quantizerFlags struct {
	plugin string
	sets   []string
}

func (f *quantizerFlags) add(flags *pflag.FlagSet, usage string) {
	flags.StringVar(&f.plugin, "quantizer", "", usage)
	flags.StringArrayVar(&f.sets, "set", nil, "give a parameter of the quantizer: `KEY=VALUE` (repeatable)")
}

// params are the parameters of the plugin.
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

// instead is the quantizer to use instead of the run's own; nil: that.
func (f *quantizerFlags) instead(weightsOnly bool) (*trained.Quantizer, error) {
	params, err := f.params()
	switch {
	case err != nil:
		return nil, err
	case f.plugin == "" && weightsOnly:
		return nil, usageError{fmt.Errorf("--weights-only says what a quantizer is for: name it with --quantizer")}
	case f.plugin == "":
		return nil, nil
	case f.plugin == trained.NoQuantizer && (weightsOnly || len(params) > 0):
		return nil, usageError{fmt.Errorf("--quantizer none quantizes nothing: leave --set and --weights-only out")}
	}
	return &trained.Quantizer{Plugin: f.plugin, Params: params, WeightsOnly: weightsOnly}, nil
}

// tomlValue reads a value as TOML; what is none is a text.
func tomlValue(text string) any {
	value, err := plaintoml.Value(text)
	if err != nil {
		return text
	}
	return value
}
