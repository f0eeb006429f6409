package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plainjson"
)

func newRunsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Describe a run",
		Long: `Print the results, the checkpoints, the build and plugins, the newest samples
(train.samples) and the configuration of a run.`,
		Args: exactly(1, "one run directory"),
	}
	return withOutput(cmd, func(_ *cobra.Command, args []string) (*output, error) {
		r, err := rundir.Open(args[0])
		if err != nil {
			return nil, err
		}
		checkpoints, err := checkpoint.List(rundir.At(r.Dir).Checkpoints())
		if err != nil {
			return nil, err
		}
		steps := checkpoint.Steps(checkpoints)
		provenance, err := rundir.At(r.Dir).Provenance().ReadFile()
		if errors.Is(err, fs.ErrNotExist) {
			provenance, err = []byte("{}"), nil
		}
		if err != nil {
			return nil, err
		}
		rows := [][]string{{r.Dir, string(r.State)}}
		if r.Err != "" {
			rows = append(rows, []string{"error", r.Err})
		}
		modified, _ := r.Lookup("modified")
		rows = append(rows, []string{"modified", modified})
		for _, x := range r.Results() {
			rows = append(rows, []string{x.Name, metrics.Short(x.Value)})
		}
		rows = append(rows, []string{"checkpoints", strings.Trim(fmt.Sprint(steps), "[]")})
		more, err := provenanceRows(provenance)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Dir, err)
		}
		rows = append(rows, more...)
		config, err := rundir.At(r.Dir).Config().ReadFile()
		if err != nil {
			return nil, err
		}
		samples, err := metrics.Read[metrics.Sample](rundir.At(r.Dir).Samples())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		var newest *metrics.Sample
		if len(samples) > 0 {
			newest = &samples[len(samples)-1]
		}
		return &output{struct {
			runListing
			Checkpoints []int           `json:"checkpoints"` // steps
			Samples     *metrics.Sample `json:"samples,omitempty"`
			Provenance  json.RawMessage `json:"provenance"`
		}{listingOf(r), steps, newest, provenance}, func(w io.Writer) {
			table(w, rows)
			if newest != nil {
				fmt.Fprintf(w, "\nsamples at step %d\n", newest.Step)
				for _, t := range newest.Texts {
					text := strings.TrimRight(t.Prompt+t.Text, "\n")
					fmt.Fprintf(w, "\n    %s\n", strings.ReplaceAll(text, "\n", "\n    "))
				}
			}
			fmt.Fprintf(w, "\n%s", config)
		}}, nil
	})
}

func provenanceRows(text []byte) ([][]string, error) {
	var record provenance.Record
	if err := plainjson.Unmarshal(text, &record); err != nil {
		return nil, fmt.Errorf("provenance.json: %w", err)
	}
	var rows [][]string
	if record.Run != "" {
		rows = append(rows, []string{"identity", record.Run})
	}
	if record.Build != (engine.BuildInfo{}) {
		rows = append(rows, []string{"build", record.Build.String()})
	}
	for _, p := range record.Plugins {
		about := fmt.Sprintf("%s %s, SHA-256 %s", p.Name, p.Version, p.SHA256)
		rows = append(rows, []string{p.Table, strings.TrimSpace(about)})
	}
	return rows, nil
}
