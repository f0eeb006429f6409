package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/bench"
	"github.com/cage-qat/cage/host/bench/opprofile"
	"github.com/cage-qat/cage/host/config"
)

// compareStep runs this command and a peer's in turn.
func compareStep(cmd *cobra.Command, peer string, rounds int, asJSON bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	a := append([]string{self}, withoutFlags(os.Args[1:], "compare", "rounds", "json")...)
	c, err := bench.Compare(cmd.Context(), append(a, "--alone"), []string{"sh", "-c", peer}, rounds, func(side string, p bench.Process) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s %.4f s\n", side, p.Seconds)
	})
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd, c)
	}
	return printComparison(cmd.OutOrStdout(), c)
}

// ownOutput runs this command with other arguments, for a benchmark that wants a process
// of its own, and returns what it wrote.
func ownOutput(ctx context.Context, args []string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.CommandContext(ctx, self, args...)
	var stderr bytes.Buffer
	child.Stderr = &stderr
	text, err := child.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return text, nil
}

// withoutFlags leaves out flags, with their values where these are separate words.
// The flag json has none.
func withoutFlags(args []string, names ...string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		leave := false
		for _, n := range names {
			leave = leave || strings.HasPrefix(args[i], "--") && name == n
		}
		if !leave {
			out = append(out, args[i])
		} else if !joined && name != "json" {
			i++
		}
	}
	return out
}

// stepAlone measures one step and prints one line, for a process that compares.
func stepAlone(cmd *cobra.Command, cfg *config.Config, o bench.Options) error {
	o.Direct = false
	o.Only = bench.Configured(cfg)
	r, err := bench.Run(cmd.Context(), cfg, o)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{
		"seconds": r.Steps[0].Seconds, "first_step_unix": float64(r.FirstStep.UnixNano()) / 1e9,
		"gflops": r.FLOPs / r.Steps[0].Seconds / 1e9, "flops": r.FLOPs, "peak_memory_bytes": r.PeakMemory,
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), string(text))
	return err
}

func printComparison(w io.Writer, c *bench.Comparison) error {
	fmt.Fprintf(w, "A: %s\nB: %s\n\n", c.A.Command, c.B.Command)
	rows := [][]string{{"medians", "step ms", "peak MiB", "process s", "cpu s", "start to first step s"}}
	for i, s := range []bench.Side{c.A, c.B} {
		m := s.Median
		first := "-"
		if m.FirstStep > 0 {
			first = fmt.Sprintf("%.2f", m.FirstStep)
		}
		rows = append(rows, []string{
			string(rune('A' + i)), fmt.Sprintf("%.1f", 1e3*m.Seconds), fmt.Sprintf("%.0f", float64(m.Peak)/(1<<20)),
			fmt.Sprintf("%.1f", m.Wall), fmt.Sprintf("%.1f", m.CPU), first,
		})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nA is %.2f times as fast as B (%.2f to %.2f in %d pairs) and needs %.2f times its memory\n",
		c.Ratio, c.Low, c.High, len(c.A.Runs), c.Memory)
	return err
}

// profileStep prints where the time of a step goes.
func profileStep(cmd *cobra.Command, cfg *config.Config, o bench.Options, asJSON bool) error {
	p, err := bench.ProfileStep(cmd.Context(), cfg, o)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd, p)
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s\nprocessor time of a step, mean of %d\n", p.Build, p.Steps)
	for _, part := range []struct {
		title string
		rows  []opprofile.Row
	}{{"kind of operation", p.Kinds}, {"part", p.Parts}} {
		fmt.Fprintln(w)
		if err := table(w, shares(part.title, part.rows)); err != nil {
			return err
		}
	}
	return nil
}

// shares are the rows of a table with each one's part of the whole.
func shares(title string, list []opprofile.Row) [][]string {
	total := 0.0
	for _, r := range list {
		total += r.Seconds
	}
	rows := [][]string{{title, "ms", "share"}}
	for _, r := range list {
		rows = append(rows, []string{r.Kind, fmt.Sprintf("%.1f", 1e3*r.Seconds), fmt.Sprintf("%.1f %%", 100*r.Seconds/total)})
	}
	return rows
}
