package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/deploy/trained"
)

const quantizeHelp = `Quantize the weights of a trained model without training, as a baseline for
quantization-aware training. The model is a run directory or a Hugging Face checkpoint;
the quantizer is any plugin, or the run's own.

  rtn   round to nearest: each matrix W becomes Q(W)
  gptq  round column by column, and compensate the errors in the columns that follow, for
        the inputs of each layer on a calibration text (Frantar et al. 2023)

  cage quantize runs/full --quantizer absmax --set granularity=group --out runs/gptq
  cage quantize llama-3.2-1b --quantizer mxfp4 --data web.tokens --out runs/mxfp4

The result is a run directory with the quantized weights. It can be evaluated, sampled
from and exported. The report compares the outputs of each layer on the calibration text
with those of the original weights.`

func newQuantize() *cobra.Command {
	var o quantize.Options
	var quantizer quantizerFlags
	cmd := &cobra.Command{
		Use:   "quantize RUN|CHECKPOINT --out RUN",
		Short: "Quantize the weights of a trained model without training",
		Long:  quantizeHelp,
	}
	modelFlags(cmd, &o.Step, &o.Context, "windows", "seed")
	addKeys(cmd, o.Keys())
	flags := cmd.Flags()
	quantizer.add(flags, "`NAME` or path of the quantizer plugin; default: the run's own")
	flags.StringVar(&o.Out, "out", "", "`RUN` directory to create (required)")
	flags.BoolVar(&o.Activations, "activations", false,
		"also quantize activations, with the same quantizer")
	flags.StringVar(&o.Validation, "validation", "", "token file or chat file `FILE` to use as "+
		"the validation set of the result; default: the run's own")
	flags.StringVar(&o.Device, "device", "", "`KIND` of device: cpu or cuda; default: the run's own")
	parentPipeFlag(cmd)
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		if err := checkKeys(cmd, o.Keys()); err != nil {
			return nil, err
		}
		for _, p := range o.Check() {
			return nil, usagef("--%s: found %s; %s", p.Key, p.Found, p.Hint)
		}
		if o.Out == "" {
			return nil, usagef("--out is missing: want the run directory to create")
		}
		o.Plugin = quantizer.plugin
		var err error
		if o.Params, err = quantizer.params(); err != nil {
			return nil, err
		}
		o.Logger = newLogger(cmd)
		result, err := quantize.Run(cmd.Context(), args[0], o)
		if err != nil {
			return nil, err
		}
		return &output{result, func(w io.Writer) { printQuantized(w, o.Out, result) }}, nil
	})
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'g', 3, 64) + " %" }

func printQuantized(w io.Writer, out string, p *trained.Posttrained) {
	rows := [][]string{{"matrix", "shape", "‖W−Ŵ‖/‖W‖"}}
	if p.Calibration != nil {
		rows[0] = append(rows[0], "Σ‖(W−Ŵ)X‖²", "of Σ‖WX‖²", "rounding", "notes")
	}
	short := func(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
	for _, m := range p.Matrices {
		var notes []string
		if m.Fallback {
			notes = append(notes, "rounded to nearest: the Hessian is not positive definite")
		}
		if m.Dead > 0 {
			notes = append(notes, fmt.Sprintf("%d columns with zero inputs", m.Dead))
		}
		row := []string{m.Name, fmt.Sprint(m.Shape), percent(m.WeightError)}
		if m.OutputErrors != nil {
			row = append(row, short(m.OutputError), percent(m.RelativeError),
				short(m.RoundingError), strings.Join(notes, "; "))
		}
		rows = append(rows, row)
	}
	table(w, rows)
	if c := p.Calibration; c != nil {
		fmt.Fprintf(w, "\ncalibrated with %s\n", c)
	}
	fmt.Fprintf(w, "wrote the quantized model to %s: "+
		"use it with cage eval, cage generate or cage export\n", out)
}
