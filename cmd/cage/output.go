package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/metrics/console"
	"github.com/cage-qat/cage/internal/safetext"
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
	_, err = fmt.Fprintln(cmd.OutOrStdout(), safetext.JSON(string(text)))
	return err
}

// table writes rows in aligned columns; the first is the heading. On a terminal the
// last column is wrapped.
func table(w io.Writer, rows [][]string) error {
	rows = oneLineEach(rows)
	if f, ok := drawing(w).(*os.File); ok {
		if width := console.Terminal(f); width != nil {
			rows = wrapLast(rows, width())
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return t.Flush()
}

// oneLineEach escapes what would break the lines of a table.
func oneLineEach(rows [][]string) [][]string {
	out := make([][]string, len(rows))
	for i, row := range rows {
		for _, cell := range row {
			out[i] = append(out[i], safetext.Line(cell))
		}
	}
	return out
}

const (
	columnGap  = 2
	leastWidth = 20 // of a column that is worth wrapping
)

// wrapLast breaks the last column between words so that rows fit into width.
func wrapLast(rows [][]string, width int) [][]string {
	last, left := len(rows[0])-1, width
	for c := range last {
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[c]))
		}
		left -= widest + columnGap
	}
	if left < leastWidth {
		return rows
	}
	var out [][]string
	for _, row := range rows {
		for i, line := range breakLines(row[last], left) {
			cells := make([]string, last, last+1)
			if i == 0 {
				copy(cells, row)
			}
			out = append(out, append(cells, line))
		}
	}
	return out
}

// breakLines breaks text between words into lines of at most width characters,
// longer words excepted.
func breakLines(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		line := &lines[len(lines)-1]
		switch {
		case *line == "":
			*line = word
		case utf8.RuneCountInString(*line)+1+utf8.RuneCountInString(word) <= width:
			*line += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// newLogger makes the logger of a command; messages go to out, or if that is nil to the
// standard error. They may quote what others said.
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
		out = cmd.ErrOrStderr()
	}
	return hclog.New(&hclog.LoggerOptions{Name: "cage", Level: level, Output: safetext.NewWriter(out), TimeFormat: "15:04:05"}), nil
}
