package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/rundir"
)

func newImport() *cobra.Command {
	var out string
	var context int
	var parentPipe time.Duration
	cmd := &cobra.Command{
		Use:   "import CHECKPOINT [--out RUN]",
		Short: "Make a run directory of a Hugging Face checkpoint",
		Long: `Read the directory of a Hugging Face checkpoint (Llama, Mistral without window, OLMo 2,
Qwen3; safetensors, one file or several) and show how it is understood: the model, and
what becomes of each tensor. Everything that is wrong is said at once.

With --out, a run directory is made that holds the model as it is, without a step of
training: it can be evaluated, sampled from and exported. A training can start from it, or
from the checkpoint itself, with model.init.`,
		Args: notNegative(exactly(1, "one directory of a Hugging Face checkpoint"), "context"),
	}
	cmd.Flags().StringVar(&out, "out", "", "run directory to make; empty: none")
	contextFlag(cmd, &context)
	parentPipeFlag(cmd, &parentPipe)
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		watchParent(parentPipe)
		c, err := trained.Import(cmd.Context(), args[0], out, context)
		if run, _ := rundir.At(args[0]).Config().Exists(); run && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is a run directory already: want the directory of a Hugging Face checkpoint", args[0])
		}
		if err != nil {
			return nil, err
		}
		return &answer{newImported(args[0], out, c), func(w io.Writer) { printImported(w, args[0], out, c) }}, nil
	})
}

type importListing struct {
	Checkpoint   string             `json:"checkpoint"`
	Run          string             `json:"run,omitempty"`
	Architecture string             `json:"architecture"`
	Model        map[string]any     `json:"model"` // by the keys of [model]
	Parameters   int                `json:"parameters"`
	MaxPositions int                `json:"max_positions"`
	Tokens       huggingface.Tokens `json:"tokens"`
	Warnings     []string           `json:"warnings,omitempty"`
	Tensors      huggingface.Report `json:"tensors"`
}

var shownKeys = []string{"kind", "layers", "width", "heads", "kv_heads", "head_size", "hidden", "vocab", "head", "norm_eps",
	"rope_theta", "rope_pairs", "rope_factor", "rope_low", "rope_high", "rope_original"}

func newImported(dir, out string, c *huggingface.Checkpoint) importListing {
	s := c.Config.Settings
	model := map[string]any{}
	for _, k := range s.Keys() {
		model[k.Name] = k.Value()
	}
	shown := map[string]any{}
	for _, key := range shownKeys {
		shown[key] = model[key]
	}
	parameters := 0
	for _, p := range c.Params() {
		parameters += p.Size()
	}
	return importListing{dir, out, c.Config.Architecture, shown, parameters, c.Config.MaxPositions, c.Config.Tokens, c.Config.Warnings, c.Report}
}

func printImported(w io.Writer, dir, out string, c *huggingface.Checkpoint) {
	about := newImported(dir, out, c)
	rows := [][]string{{dir, about.Architecture}}
	for _, key := range shownKeys {
		rows = append(rows, []string{"model." + key, fmt.Sprint(about.Model[key])})
	}
	rows = append(rows, []string{"parameters", fmt.Sprint(about.Parameters)}, []string{"max. positions", fmt.Sprint(about.MaxPositions)},
		[]string{"begin, end, padding", fmt.Sprint(about.Tokens.Begin, about.Tokens.End, about.Tokens.Pad)})
	for _, warning := range about.Warnings {
		rows = append(rows, []string{"warning", warning})
	}
	table(w, rows)
	fmt.Fprintln(w)
	rows = [][]string{{"tensor", "type", "shape", "becomes"}}
	for _, a := range about.Tensors.Applied {
		rows = append(rows, []string{a.Tensor, string(a.Type), fmt.Sprint(a.Shape), a.Parameter})
	}
	for _, name := range about.Tensors.Ignored {
		rows = append(rows, []string{name, "", "", "ignored"})
	}
	table(w, rows)
	if out != "" {
		fmt.Fprintf(w, "\n%s holds this model: try cage eval --data FILE, cage generate, or a training with model.init = %q\n", out, out)
	}
}
