package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

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
