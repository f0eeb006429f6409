package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/sdk/program"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config [RUN.toml]",
		Short: "Document all keys of a run's TOML file, or show its model",
		Long: `Document all keys of a run's TOML file. With a file, show the run's model as a program,
with its quantizers in place: first the whole, then the calls in it. Those that differ
only in their layer or in shapes are shown once.

  cage config examples/paper/effect.toml --set model.layers=2`,
		Args: arguments(0, 1, "at most one TOML file"),
	}
	sets := cmd.Flags().StringArray("set", nil,
		"override a key of the TOML: `KEY=VALUE` (repeatable)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			_, err := fmt.Fprint(cmd.OutOrStdout(), config.Reference())
			return err
		}
		p, err := modelProgram(cmd, args[0], *sets)
		if err == nil {
			printProgram(cmd.OutOrStdout(), p, map[string]bool{})
		}
		return err
	}
	return cmd
}

// modelProgram returns the program of a run's model.
func modelProgram(cmd *cobra.Command, file string, sets []string) (*program.Program, error) {
	cfg, err := loadWithVocabulary(file, sets)
	if err != nil {
		return nil, err
	}
	if !cfg.Model.Language() {
		return nil, cfg.ErrorAt("model.kind", "only language models are programs")
	}
	m, err := build.Model(cfg)
	if err != nil {
		return nil, err
	}
	finder, options, err := newFinder(cmd)
	if err != nil {
		return nil, err
	}
	programs, err := build.Collect(cmd.Context(), build.Request{Config: cfg, Model: m,
		Batch: build.ReplicaBatch(cfg), Finder: finder, Options: options})
	if err != nil {
		return nil, err
	}
	plan, err := build.Plan(cfg, m, programs)
	if err != nil {
		return nil, err
	}
	return plan.Program()
}

// own matches what tells calls with the same operations apart: layers, sites, and shapes.
var own = regexp.MustCompile(`layers\.\d+\.|^program \S+?\(|\[[\d,]+\]`)

// printProgram prints a program and then the calls in it that have not been printed.
func printProgram(w io.Writer, p *program.Program, printed map[string]bool) {
	head, body, _ := strings.Cut(p.String(), "\n")
	if len(head) > 100 {
		head = strings.ReplaceAll(head, ", %", ",\n    %")
	}
	fmt.Fprintf(w, "%s\n%s", head, body)
	for _, n := range p.Nodes {
		if n.Op != program.OpCall {
			continue
		}
		key := n.Attr.Call.Name + own.ReplaceAllString(n.Attr.Call.Meaning.String(), "")
		if !printed[key] {
			printed[key] = true
			fmt.Fprintf(w, "\n%s is ", n.Attr.Call.Name)
			printProgram(w, n.Attr.Call.Meaning, printed)
		}
	}
}
