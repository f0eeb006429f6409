package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/deploy/trained"
)

const quantizeHelp = `Quantize the weights of a trained model, the baseline that training with
quantization is compared with. The model is that of a run directory or of a Hugging Face
checkpoint; the quantizer is any plugin, or the run's own.

  rtn   each weight becomes the nearest number that the quantizer has: Q of each matrix
  gptq  column by column, where those that follow make up for the error of those before
        (Frantar et al. 2023), for the inputs that a calibration text gives each layer

  cage quantize runs/full --quantizer absmax --set granularity=group --out runs/gptq
  cage quantize llama-3.2-1b --quantizer mxfp4 --data web.tokens --out runs/mxfp4

The result is a run directory whose weights are the quantized ones. It can be evaluated,
sampled from and exported. The report compares the outputs of each layer on the text of
the calibration with those of the original weights.`

func newQuantize() *cobra.Command {
	var o quantize.Options
	var quantizer quantizerFlags
	var parentPipe time.Duration
	cmd := &cobra.Command{
		Use:   "quantize RUN|CHECKPOINT --out RUN",
		Short: "Quantize the weights of a trained model without training",
		Long:  quantizeHelp,
	}
	modelFlags(cmd, &o.Step, &o.Context, "windows", "seed")
	addKeys(cmd, o.Keys())
	flags := cmd.Flags()
	quantizer.add(flags, "`NAME` or path of the quantizer plugin; default: that of the run")
	flags.StringVar(&o.Out, "out", "", "`RUN` directory to make")
	flags.BoolVar(&o.Activations, "activations", false,
		"quantize activations, too, with the same quantizer")
	flags.StringVar(&o.Validation, "validation", "", "token file or chat file `FILE` that becomes "+
		"the validation set of the result; default: that of the run")
	flags.StringVar(&o.Device, "device", "", "`KIND` of device: cpu or cuda; default: that of the run")
	parentPipeFlag(cmd, &parentPipe)
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if err := checkKeys(cmd, o.Keys()); err != nil {
			return nil, err
		}
		for _, p := range o.Check() {
			return nil, usagef("--%s: found %s; %s", p.Key, p.Found, p.Hint)
		}
		if o.Out == "" {
			return nil, usagef("--out is missing: want the run directory to make")
		}
		watchParent(parentPipe)
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
		return &answer{result, func(w io.Writer) { printQuantized(w, o.Out, result) }}, nil
	})
}

func printQuantized(w io.Writer, out string, p *trained.Posttrained) {
	rows := [][]string{{"matrix", "shape", "‖W−Ŵ‖/‖W‖"}}
	if p.Calibration != nil {
		rows[0] = append(rows[0], "Σ‖(W−Ŵ)X‖²", "of Σ‖WX‖²", "rounding", "notes")
	}
	percent := func(x float64) string { return strconv.FormatFloat(100*x, 'g', 3, 64) + " %" }
	short := func(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
	for _, m := range p.Matrices {
		var notes []string
		if m.Fallback {
			notes = append(notes, "rounded: the Hessian is not positive definite")
		}
		if m.Dead > 0 {
			notes = append(notes, fmt.Sprintf("%d columns without inputs", m.Dead))
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
	fmt.Fprintf(w, "%s holds the quantized model: try cage eval, cage generate or cage export\n", out)
}
