package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/checkpoint"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/metrics"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/host/runs"
)

func newRunsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Show everything about a run",
		Long: `Show everything about a run: its results, its checkpoints, what it was made with, and
its configuration.`,
		Args: exactly(1, "one run directory"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := runs.Open(args[0])
		if err != nil {
			return err
		}
		checkpoints, err := checkpoint.List(rundir.At(r.Dir).Checkpoints())
		if err != nil {
			return err
		}
		provenance, err := rundir.At(r.Dir).Provenance().ReadFile()
		if errors.Is(err, fs.ErrNotExist) {
			provenance, err = []byte("{}"), nil
		}
		if err != nil {
			return err
		}
		steps := []int{}
		for _, e := range checkpoints {
			steps = append(steps, e.Step)
		}
		if *asJSON {
			return printJSON(cmd, struct {
				runListing
				Checkpoints []int           `json:"checkpoints"` // steps
				Provenance  json.RawMessage `json:"provenance"`
			}{listingOf(r), steps, provenance})
		}
		return showRun(cmd.OutOrStdout(), r, steps, provenance)
	}
	return cmd
}

func showRun(w io.Writer, r *runs.Run, checkpoints []int, provenance []byte) error {
	rows := [][]string{{r.Dir, string(r.State)}}
	if r.Err != "" {
		rows = append(rows, []string{"error", r.Err})
	}
	modified, _ := r.Lookup("modified")
	rows = append(rows, []string{"modified", modified})
	for _, x := range r.Results() {
		rows = append(rows, []string{x.Name, fmt.Sprintf("%.6g", x.Value)})
	}
	rows = append(rows, []string{"checkpoints", strings.Trim(fmt.Sprint(checkpoints), "[]")})
	made, err := madeWith(provenance)
	if err != nil {
		return err
	}
	if err := table(w, append(rows, made...)); err != nil {
		return err
	}
	text, err := rundir.At(r.Dir).Config().ReadFile()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s", text)
	return err
}

// madeWith are the build and the plugins of a run, from its provenance.json.
func madeWith(text []byte) ([][]string, error) {
	var provenance struct {
		Run     string
		Build   engine.BuildInfo
		Plugins []assembly.Used
	}
	if err := json.Unmarshal(text, &provenance); err != nil {
		return nil, fmt.Errorf("provenance.json: %w", err)
	}
	var rows [][]string
	if provenance.Run != "" {
		rows = append(rows, []string{"identity", provenance.Run})
	}
	if provenance.Build != (engine.BuildInfo{}) {
		rows = append(rows, []string{"build", provenance.Build.String()})
	}
	for _, p := range provenance.Plugins {
		rows = append(rows, []string{p.Table, strings.TrimSpace(fmt.Sprintf("%s %s, SHA-256 %s", p.Name, p.Version, p.SHA256))})
	}
	return rows, nil
}

func newRunsDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Show in what two runs differ, and their results side by side",
		Args:  exactly(2, "two run directories"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := runs.Open(args[0])
		if err != nil {
			return err
		}
		b, err := runs.Open(args[1])
		if err != nil {
			return err
		}
		differences := runs.Diff(a, b)
		if *asJSON {
			config := map[string][]string{}
			for _, d := range differences {
				config[d.Key] = d.Values
			}
			results := map[string][]*metrics.Number{}
			for _, name := range resultNames(a, b) {
				results[name] = []*metrics.Number{resultOf(a, name), resultOf(b, name)}
			}
			return printJSON(cmd, map[string]any{"runs": []string{a.Dir, b.Dir}, "config": config, "results": results})
		}
		rows := [][]string{{"", a.Dir, b.Dir}}
		for _, d := range differences {
			rows = append(rows, []string{d.Key, orDash(d.Values[0]), orDash(d.Values[1])})
		}
		rows = append(rows, []string{"state", string(a.State), string(b.State)})
		for _, name := range resultNames(a, b) {
			rows = append(rows, []string{name, number(resultOf(a, name), "%.6g"), number(resultOf(b, name), "%.6g")})
		}
		return table(cmd.OutOrStdout(), rows)
	}
	return cmd
}

// resultNames are the names of the results of either run.
func resultNames(a, b *runs.Run) []string {
	var names []string
	for _, x := range a.Results() {
		names = append(names, x.Name)
	}
	for _, x := range b.Results() {
		if _, ok := a.Result(x.Name); !ok {
			names = append(names, x.Name)
		}
	}
	return names
}

func resultOf(r *runs.Run, name string) *metrics.Number {
	if x, ok := r.Result(name); ok {
		return metrics.Some(x)
	}
	return nil
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}
