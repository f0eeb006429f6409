package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/internal/schema"
)

// addKeys adds a flag for each key, with its default and its text.
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
		if k.Is.Words != nil {
			_ = cmd.RegisterFlagCompletionFunc(k.FlagName(), words(k.Is.Words).cobra) // fails only where there is one already
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
