package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
)

// jsonFlag adds --json to a command that prints a result.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print the result as JSON")
}

// printJSON writes v indented to the command's standard output.
func printJSON(cmd *cobra.Command, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), string(text))
	return err
}

// table writes rows in aligned columns; the first is the heading.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return t.Flush()
}

// newLogger makes the logger of a command; messages go to out.
func newLogger(cmd *cobra.Command, out io.Writer) (hclog.Logger, error) {
	name, err := cmd.Flags().GetString("log-level")
	if err != nil {
		return nil, err
	}
	level := hclog.LevelFromString(name)
	if level == hclog.NoLevel {
		return nil, usageError{fmt.Errorf("--log-level %q: use trace, debug, info, warn, error or off", name)}
	}
	if out == nil {
		out = os.Stderr
	}
	return hclog.New(&hclog.LoggerOptions{Name: "cage", Level: level, Output: out, TimeFormat: "15:04:05"}), nil
}
