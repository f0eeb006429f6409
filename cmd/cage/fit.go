package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/scaling"
	"github.com/cage-qat/cage/internal/vfs"
)

func newFit() *cobra.Command {
	o := scaling.Defaults()
	var fixed, bits map[string]string
	var labels []string
	out := ""
	cmd := &cobra.Command{
		Use:   "fit SOURCE...",
		Short: "Fit the precision scaling law to losses",
		Long: `Fit L(N, D, P) = A/(N·eff)^α + B/D^β + E to final validation losses: N parameters
outside the embeddings, D tokens, and a parameter efficiency eff for each method and
number of bits. Each SOURCE is a run directory, a directory of runs (such as a study's),
or a .csv file with the columns n, d, method, bits, and loss or ppl.

eff is 1 for the method with 16 bits or more, or the one that --reference names. A
warning names parameters that the points do not determine; --fix fixes parameters at
known values, such as those published with QuEST:

  cage fit runs --fix A=8.13403,alpha=0.0627265,B=86.4119,beta=0.241288,E=0.00142329

With --out, the result is written to fit.md and fit.json, with figures: loss against
size, eff·16/P, and the Pareto front of loss against bytes.`,
		Args: notNegative(atLeastOne("run directory, directory of runs or .csv file"),
			"bootstrap", "huber", "prior"),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Reference, "reference", "", "`METHOD` with eff = 1")
	flags.StringVar(&o.Baseline, "baseline", "", "`METHOD` to compare the others with, at equal bits")
	flags.StringToStringVar(&fixed, "fix", nil,
		"fix A, alpha, B, beta or E: `NAME=VALUE,...`")
	flags.Float64Var(&o.Huber, "huber", o.Huber,
		"δ of the Huber loss of the residuals of log L; 0: least squares")
	flags.Float64Var(&o.Prior, "prior", o.Prior,
		"`WEIGHT` of the priors on log alpha and log beta; 0: none")
	flags.IntVar(&o.Bootstrap, "bootstrap", o.Bootstrap,
		"bootstrap replicates for the intervals; 0: linear approximation")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the bootstrap")
	flags.StringSliceVar(&labels, "label", nil,
		"keys of run.toml whose values name the method of a run: `KEY,...`")
	flags.StringToStringVar(&bits, "bits", nil,
		"bits per weight of quantizers that do not declare them: `PLUGIN=BITS,...`")
	flags.StringVar(&out, "out", "", "`DIR` to write the result and its figures to")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (_ *output, err error) {
		if o.Fixed, err = assignments("fix", fixed); err != nil {
			return nil, err
		}
		name := scaling.Labels{Keys: labels}
		if name.Bits, err = assignments("bits", bits); err != nil {
			return nil, err
		}
		if err := o.Check(); err != nil {
			return nil, usageError{err}
		}
		points, damaged, err := scaling.ReadAll(cmd.ErrOrStderr(), args, name)
		if err != nil {
			return nil, err
		}
		fit, err := scaling.Run(cmd.Context(), points, o)
		if err != nil {
			return nil, err
		}
		if out != "" {
			if err := fit.Save(cmd.Context(), vfs.At(out)); err != nil {
				return nil, err
			}
		}
		if damaged > 0 {
			err = fmt.Errorf("%d runs cannot be read and are not part of the fit", damaged)
		}
		return &output{fit, func(w io.Writer) { _ = fit.Write(w, false) }}, err
	})
}

func assignments(flag string, texts map[string]string) (map[string]float64, error) {
	values := map[string]float64{}
	for name, text := range texts {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, usagef("--%s %s=%s: %q is not a number", flag, name, text, text)
		}
		values[name] = v
	}
	return values, nil
}
