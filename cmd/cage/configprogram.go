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
		Long: `Document all keys of a run's TOML file. With a file, show the forward pass of its model
in training as a program, with its quantizers in place: first the whole, then the calls
in it. Those that differ only in their layer or in shapes are shown once. Adapters and
quantizers of the backward pass are not shown.

  cage config examples/quartet.toml --set model.vocab=256`,
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

// layersAndShapes matches what tells calls of the same operations apart: layers, the name of the
// program, and types.
var layersAndShapes = regexp.MustCompile(`layers\.\d+\.|(?m:^program \S+?\()|: \w+\[[\d,]*\]`)

// definition returns the text of a program and of the calls in it, without layers and shapes.
func definition(p *program.Program) string {
	text := layersAndShapes.ReplaceAllString(p.String(), "")
	for _, n := range p.Nodes {
		if n.Op == program.OpCall {
			text += n.Attr.Call.Name + definition(n.Attr.Call.Meaning)
		}
	}
	return text
}

// printProgram prints a program and then the calls in it whose definitions have not been printed.
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
		key := n.Attr.Call.Name + definition(n.Attr.Call.Meaning)
		if !printed[key] {
			printed[key] = true
			fmt.Fprintf(w, "\n%s is ", n.Attr.Call.Name)
			printProgram(w, n.Attr.Call.Meaning, printed)
		}
	}
}
