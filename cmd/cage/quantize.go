package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/posttrain/layerwise"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/deploy/trained"
)

const quantizeHelp = `Quantize the weights of a trained model, the baseline that training with quantization is
compared with. The model is that of a run directory or of a Hugging Face checkpoint; the
quantizer is any plugin, or the run's own.

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
	var lifeline bool
	cmd := &cobra.Command{
		Use:   "quantize RUN|CHECKPOINT --out RUN",
		Short: "Quantize the weights of a trained model without training",
		Long:  quantizeHelp,
		Args:  notNegative(exactly(1, "one run directory or Hugging Face checkpoint"), "step", "context", "windows", "seed"),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Method, "method", layerwise.GPTQ, "gptq or rtn")
	quantizer.add(flags, "`NAME` or path of the quantizer plugin; default: that of the run")
	flags.StringVar(&o.Out, "out", "", "`RUN` directory to make")
	flags.BoolVar(&o.Activations, "activations", false, "quantize activations, too, with the same quantizer")
	flags.StringVar(&o.Data, "data", "", "calibrate with the token file, chat file or text `FILE`; default: the training set of the run")
	flags.IntVar(&o.Windows, "windows", 128, "sequences of the calibration; 0: none, with --method rtn")
	flags.Int64Var(&o.Seed, "seed", 0, "seed of the choice of sequences")
	flags.BoolVar(&o.Evaluate, "evaluate", false, "evaluate the result on its validation set, for its summary")
	flags.StringVar(&o.Validation, "validation", "", "token file or chat file `FILE` that becomes the validation set of the result; default: that of the run")
	flags.IntVar(&o.Step, "step", 0, "quantize the checkpoint of this step instead of the newest")
	flags.StringVar(&o.Device, "device", "", "`KIND` of device: cpu or cuda; default: that of the run")
	flags.Float64Var(&o.Damping, "damping", 0.01, "gptq: share of the mean of the Hessian's diagonal that is added to it")
	flags.BoolVar(&o.ActivationOrder, "activation-order", false, "gptq: columns with the largest inputs first")
	flags.StringVar(&o.Scales, "scales", layerwise.AutoScales, "gptq: scales of groups from the original weights, from the current ones, or auto: current for groups of integers")
	flags.BoolVar(&o.OnePass, "one-pass", false, "gptq: take the inputs of a block's layers from its original weights, which is faster")
	contextFlag(cmd, &o.Context)
	lifelineFlag(cmd, &lifeline)
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if err := checkQuantize(o); err != nil {
			return nil, err
		}
		holdOn(lifeline)
		o.Plugin = quantizer.plugin
		var err error
		if o.Params, err = quantizer.params(); err != nil {
			return nil, err
		}
		if o.Logger, err = newLogger(cmd, cmd.ErrOrStderr()); err != nil {
			return nil, err
		}
		result, err := quantize.Run(cmd.Context(), args[0], o)
		if err != nil {
			return nil, err
		}
		return &answer{result, func(w io.Writer) { showQuantized(w, o.Out, result) }}, nil
	})
}

// checkQuantize refuses flags that are missing or not understood.
func checkQuantize(o quantize.Options) error {
	switch {
	case o.Method != layerwise.GPTQ && o.Method != layerwise.RTN:
		return usageError{fmt.Errorf("--method %q: want gptq or rtn", o.Method)}
	case o.Scales != layerwise.AutoScales && o.Scales != layerwise.OriginalScales && o.Scales != layerwise.CurrentScales:
		return usageError{fmt.Errorf("--scales %q: want auto, original or current", o.Scales)}
	case o.Scales == layerwise.CurrentScales && o.ActivationOrder:
		return usageError{fmt.Errorf("--scales current does not go with --activation-order, which enters all groups at once")}
	case !(o.Damping > 0 && o.Damping <= 1):
		return usageError{fmt.Errorf("--damping %v: want a number above 0, up to 1", o.Damping)}
	case o.Out == "":
		return usageError{fmt.Errorf("--out is missing: want the run directory to make")}
	case o.Method == layerwise.GPTQ && o.Windows == 0:
		return usageError{fmt.Errorf("--windows 0: gptq needs a text to calibrate with")}
	}
	return nil
}

// showQuantized prints a table of the matrices, and what can be done with the result.
func showQuantized(w io.Writer, out string, p *trained.Posttrained) {
	rows := [][]string{{"matrix", "shape", "‖W−Ŵ‖/‖W‖"}}
	if p.Calibration != nil {
		rows[0] = append(rows[0], "Σ‖(W−Ŵ)X‖²", "of Σ‖WX‖²", "rounding", "notes")
	}
	for _, m := range p.Matrices {
		row := []string{m.Name, fmt.Sprint(m.Shape), percent(m.WeightError)}
		if m.OutputErrors != nil {
			row = append(row, short(m.OutputError), percent(m.RelativeError), short(m.RoundingError), notes(m))
		}
		rows = append(rows, row)
	}
	table(w, rows)
	if c := p.Calibration; c != nil {
		fmt.Fprintf(w, "\ncalibrated with %s\n", c)
	}
	if p.Loss != nil {
		fmt.Fprintf(w, "validation loss %.4f, perplexity %.3f\n", float64(*p.Loss), math.Exp(float64(*p.Loss)))
	}
	fmt.Fprintf(w, "%s holds the quantized model: try cage eval, cage generate or cage export\n", out)
}

// notes says what was not as usual.
func notes(m layerwise.Matrix) string {
	var list []string
	if m.Fallback {
		list = append(list, "rounded: the Hessian is not positive definite")
	}
	if m.Dead > 0 {
		list = append(list, fmt.Sprintf("%d columns without inputs", m.Dead))
	}
	return strings.Join(list, "; ")
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'g', 3, 64) + " %" }

func short(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
