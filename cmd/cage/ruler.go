package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/trained"
)

func newRuler() *cobra.Command {
	r := trained.Ruler{Generator: &ruler.Generator{}}
	o := trained.Options{NoData: true}
	cmd := &cobra.Command{
		Use:   "ruler RUN|CHECKPOINT",
		Short: "Evaluate a model on long contexts (RULER)",
		Long: `Evaluate a model on the 13 tasks of RULER, which hide information in a text of a given
length. The prompts are those of RULER's scripts; the answers are decoded greedily. They
are written to --out, as those of cage eval --tasks. If the command is stopped or killed,
the same command resumes.

Some tasks need published texts (--essay, --squad, --hotpot), and are left out without
them. Words are generated, unless --words gives lists.

  cage ruler runs/long --length 4096,8192 --samples 100 --out ruler/long`,
	}
	modelFlags(cmd, &o.Step, &o.Context)
	keys := r.Keys()
	for i := range keys {
		if keys[i].Name == "template" {
			keys[i].Doc += ": own, " + strings.Join(chat.BuiltIn(), ", ") + " or a `FILE`"
		}
	}
	addKeys(cmd, keys)
	flags := cmd.Flags()
	flags.Uint32Var(&r.Generator.Seed, "seed", ruler.DefaultSeed, "seed of the prompts")
	flags.StringVar(&r.Out, "out", "", "`DIR` to write the answers to (required)")
	flags.IntVar(&r.Batch, "batch", ruler.DefaultBatch, "prompts answered at once")
	flags.Lookup("context").Usage = "context length for a Hugging Face checkpoint, in tokens; " +
		"0: the largest --length"
	parentPipeFlag(cmd)
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		var err error
		switch r.List, err = ruler.Select(r.Names); {
		case err != nil:
			return nil, usagef("--tasks: %w", err)
		case r.Out == "":
			return nil, usagef("--out is missing: want the directory of the answers")
		case r.Batch < 1:
			return nil, usagef("--batch %d: want 1 or more", r.Batch)
		}
		if err := checkKeys(cmd, r.Keys()); err != nil {
			return nil, err
		}
		hub := trained.IsHub(args[0])
		if hub {
			o.Context = cmp.Or(o.Context, slices.Max(r.Lengths))
		}
		o.Generate = r.Batch
		if r.Model, err = openRun(cmd, args[0], o); err != nil {
			if hub {
				err = fmt.Errorf("for --length %d: %w", o.Context, err)
			}
			return nil, err
		}
		defer r.Model.Close()
		r.Progress = func(task string) func(done, of int) { return taskProgress(cmd, task) }
		report, err := r.Ask(cmd.Context())
		if err != nil {
			return nil, err
		}
		return &output{report, func(w io.Writer) {
			table(w, report.Table())
			fmt.Fprint(w, report.Words())
		}}, nil
	})
}
