package step

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
)

// Dispatch says into how many executables a step is compiled.
type Dispatch string

// The ways to compile a step.
const (
	// DispatchByDevice is Chain on the CPU and Whole elsewhere.
	DispatchByDevice Dispatch = ""
	// Chain runs one executable after the other, and the host looks at loss and norm
	// before the update.
	Chain Dispatch = "chain"
	// Whole runs one executable, after which the host reads one small vector. Steps in
	// which preconditioners are renewed, or put in place late, or in which stationarity
	// measures are due, run the chain.
	Whole Dispatch = "whole"
)

// runsWhole tells whether a step runs as one executable.
func (k *Kernels) runsWhole(s *State, set Settings) bool {
	return k.isWhole() && !set.Pareto && !set.FullPareto && len(k.due(set.Step)) == 0 && !s.beside.arrives(set.Step)
}

func (k *Kernels) isWhole() bool {
	return k.plan.Dispatch == Whole || k.plan.Dispatch == DispatchByDevice && k.dev.Kind() != engine.CPU
}

// prepareWhole compiles the step in the given forms.
func (k *Kernels) prepareWhole(forms []cage.Form) error {
	for _, form := range forms {
		if _, err := k.whole(form); err != nil {
			return err
		}
	}
	return nil
}

// runWhole replaces parameters and states, by their own values when the step is
// skipped.
func (k *Kernels) runWhole(s *State, b *Batches, set Settings) (res Result, err error) {
	w, err := k.whole(k.form(&quantizedWeights{at: k.plan.quantized()}, set))
	if err != nil {
		return res, err
	}
	tokens, err := b.stacked()
	if err != nil {
		return res, err
	}
	// The clip factor among them is computed on the device, where the norm is.
	scalars, err := engine.Upload(k.dev, k.scalars(set, 0), len(cage.Scalars))
	if err != nil {
		return res, err
	}
	defer scalars.Finalize()
	in := slices.Clone(s.Params)
	for _, list := range s.Optimizer {
		in = append(in, list...)
	}
	s.torn = true
	out, err := w.exec.Run(append(in, tokens, scalars), w.donate)
	if err != nil {
		return res, err
	}
	s.replace(out[:len(out)-1])
	defer out[len(out)-1].Finalize()
	read, err := engine.Download[float32](out[len(out)-1])
	if err != nil {
		return res, err
	}
	k.wholeResults(w, read, set, &res)
	s.torn = false
	return res, nil
}

// wholeResults takes the vector of a step apart.
func (k *Kernels) wholeResults(w *whole, read []float32, set Settings, res *Result) {
	next := func(n int) []float64 {
		list := make([]float64, n)
		for i, v := range read[:n] {
			list[i] = float64(v)
		}
		read = read[n:]
		return list
	}
	res.Loss = total(next(w.losses)) / float64(w.losses)
	res.GradNorm = math.Sqrt(total(next(w.norms)))
	res.Skipped = !finite(res.Loss) || !finite(res.GradNorm)
	for _, name := range w.measures {
		list := next(w.quantized)
		if !res.Skipped && (set.Statistics || name == cage.OutputUncorrected) {
			k.setMeasure(res, name, list)
		}
	}
}

func total(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum
}
