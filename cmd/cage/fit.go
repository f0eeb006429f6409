package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/scaling"
	"github.com/cage-qat/cage/internal/vfs"
)

// fitFlags are the flags of cage fit.
type fitFlags struct {
	scaling.Options
	resample, format string
	fixed, bits      map[string]string
	priorCenters     [2]float64
	labels           []string
	out              string
}

func newFit() *cobra.Command {
	f := fitFlags{Options: scaling.Defaults()}
	cmd := &cobra.Command{
		Use:   "fit SOURCE...",
		Short: "Fit the precision scaling law to losses",
		Long: `Fit L(N, D, P) = A/(N·eff)^α + B/D^β + E to final validation losses: N parameters
outside the embeddings, D tokens, and one parameter efficiency eff for each method and
number of bits. Each SOURCE is a run directory, a directory of runs such as that of a
study, or a .csv or .json file with the columns n, d, method, bits, and loss or ppl.

The reference with eff = 1 is the method of 16 bits or more, unless --reference names
another. What the points cannot tell apart is said in warnings; --fix holds parameters
at values known from elsewhere, such as the fit published with QuEST:

  cage fit runs --fix A=8.13403,alpha=0.0627265,B=86.4119,beta=0.241288,E=0.00142329

With --out, the result is written as fit.md, fit.csv and fit.json, with figures: loss
against size, eff·16/P, and the Pareto front of loss against bytes.`,
		Args: notNegative(atLeastOne("run directory, directory of runs, .csv or .json file"), "bootstrap", "huber", "prior"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Reference, "reference", "", "`METHOD` whose eff is 1")
	flags.StringVar(&f.Baseline, "baseline", "", "`METHOD` to compare the others with, bits by bits")
	flags.StringToStringVar(&f.fixed, "fix", nil, "hold A, alpha, B, beta or E at a value: `NAME=VALUE,...`")
	flags.Float64Var(&f.Huber, "huber", f.Huber, "residual of log L beyond which it counts linearly; 0: plain squares")
	flags.Float64Var(&f.Prior, "prior", f.Prior, "`WEIGHT` of the priors on log alpha and log beta; 0: none")
	flags.Float64Var(&f.priorCenters[0], "prior-alpha", scaling.DefaultCenter, "centre of the prior on alpha")
	flags.Float64Var(&f.priorCenters[1], "prior-beta", scaling.DefaultCenter, "centre of the prior on beta")
	flags.IntVar(&f.Bootstrap, "bootstrap", f.Bootstrap, "replicates for the intervals; 0: linearize")
	flags.StringVar(&f.resample, "resample", string(f.Resample), "what a replicate draws: residuals or cases")
	flags.Uint64Var(&f.Seed, "seed", 0, "seed of the bootstrap")
	flags.Float64Var(&f.Level, "level", f.Level, "level of the intervals")
	flags.StringSliceVar(&f.labels, "label", nil, "keys of run.toml whose values name the method of a run: `KEY,...`")
	flags.StringToStringVar(&f.bits, "bits", nil, "bits per weight of quantizers that do not say: `PLUGIN=BITS,...`")
	flags.StringVar(&f.format, "format", string(scaling.Text), "text, markdown, csv or json")
	flags.StringVar(&f.out, "out", "", "`DIR` to write the result and its figures to")
	return withAnswer(cmd, f.run)
}

func (f *fitFlags) run(cmd *cobra.Command, args []string) (*answer, error) {
	labels, err := f.options()
	if err != nil {
		return nil, err
	}
	points, damaged, err := scaling.ReadAll(cmd.ErrOrStderr(), args, labels)
	if err != nil {
		return nil, err
	}
	fit, err := scaling.Run(cmd.Context(), points, f.Options)
	if err != nil {
		return nil, err
	}
	if f.out != "" {
		if err := fit.Save(cmd.Context(), vfs.At(f.out)); err != nil {
			return nil, err
		}
	}
	if damaged > 0 {
		err = fmt.Errorf("%d of the runs cannot be read; the fit is without them", damaged)
	}
	return &answer{fit, func(w io.Writer) { _ = fit.Write(w, scaling.Format(f.format)) }}, err
}

// options turns the flags into options and checks them.
func (f *fitFlags) options() (labels scaling.Labels, err error) {
	f.Resample, f.Alpha0, f.Beta0 = scaling.Resampling(f.resample), f.priorCenters[0], f.priorCenters[1]
	if !slices.Contains(scaling.Formats, scaling.Format(f.format)) {
		return labels, usageError{fmt.Errorf("--format %q: use text, markdown, csv or json", f.format)}
	}
	if f.Fixed, err = assignments("fix", f.fixed); err != nil {
		return labels, err
	}
	if labels.Bits, err = assignments("bits", f.bits); err != nil {
		return labels, err
	}
	labels.Keys = f.labels
	if err := f.Options.Check(); err != nil {
		return labels, usageError{err}
	}
	return labels, nil
}

// assignments reads the numbers of NAME=VALUE flags.
func assignments(flag string, texts map[string]string) (map[string]float64, error) {
	values := map[string]float64{}
	for name, text := range texts {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, usageError{fmt.Errorf("--%s %s=%s: %q is not a number", flag, name, text, text)}
		}
		values[name] = v
	}
	return values, nil
}
