package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/bench"
	"github.com/cage-qat/cage/host/study/bench/opprofile"
	"github.com/cage-qat/cage/host/train/config"
)

// compareStep runs this command and a peer's in turn.
func compareStep(cmd *cobra.Command, peer string, rounds int) (*answer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	own := append([]string{self}, withoutFlags(os.Args[1:], "compare", "rounds", "json")...)
	c, err := bench.Compare(cmd.Context(), append(own, "--alone"), []string{"sh", "-c", peer}, rounds, func(side string, p bench.Process) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s %.4f s\n", side, p.Seconds)
	})
	if err != nil {
		return nil, err
	}
	return &answer{c, func(w io.Writer) { printComparison(w, c) }}, nil
}

// ownOutput runs this command with other arguments in a process of its own, and returns
// what it wrote.
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
		name, isFlag := strings.CutPrefix(args[i], "--")
		name, _, joined := strings.Cut(name, "=")
		if !isFlag || !slices.Contains(names, name) {
			out = append(out, args[i])
		} else if !joined && name != "json" {
			i++
		}
	}
	return out
}

// stepAlone measures the configured step and prints one line.
func stepAlone(ctx context.Context, cfg *config.Config, o bench.Options) (*answer, error) {
	o.Direct, o.Only = false, bench.Configured(cfg)
	r, err := bench.Run(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	value := map[string]any{
		"seconds": r.Seconds, "first_step_unix": r.FirstStepUnix,
		"gflops": r.FLOPs / r.Seconds / 1e9, "flops": r.FLOPs, "peak_memory_bytes": r.PeakMemory,
	}
	line, err := json.Marshal(value)
	return inWords(value, "%s\n", line), err
}

func printComparison(w io.Writer, c *bench.Comparison) {
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
	table(w, rows)
	fmt.Fprintf(w, "\nA is %.2f times as fast as B (%.2f to %.2f in %d pairs) and needs %.2f times its memory\n",
		c.Ratio, c.Low, c.High, len(c.A.Runs), c.Memory)
}

// profileStep says where the time of a step goes.
func profileStep(ctx context.Context, cfg *config.Config, o bench.Options) (*answer, error) {
	p, err := bench.ProfileStep(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	return &answer{p, func(w io.Writer) {
		fmt.Fprintf(w, "%s\nprocessor time of a step, mean of %d\n\n", p.Build, p.Steps)
		table(w, shares("kind of operation", p.Kinds))
		fmt.Fprintln(w)
		table(w, shares("part", p.Parts))
	}}, nil
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
