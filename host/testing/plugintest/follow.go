package plugintest

import (
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
)

// Follow trains a matrix along the gradients and rates of a case, and compares the matrix after
// every update with the case. The case's parameters are the settings; its inputs are
//
//	x0        the matrix at the start
//	grads     the gradient of each update
//	slopes    if present, the gradient is linear in the matrix: grads plus the elementwise product of
//	          slopes and the matrix
//	sampled   the gradient with drawn labels at each update, times √n, if the optimizer takes one
//	rates     the schedule's rate of each update
//	steps     the length of the run; the number of rates if absent
//	losses    the loss of each update, if the optimizer reads it
//	matrices  the number of matrices into which the rows are divided, and over which the optimizer
//	          sums collected values; 1 if absent
//
// and it expects x, the matrix after each update, and, if present, evaluated, the parameters with
// which the model is evaluated. The tolerance is that of [Bench.Close].
func (m Bench) Follow(t testing.TB, o sdk.Optimizer, c golden.Case, single float64) {
	t.Helper()
	x, grads, rates := c.Inputs.Array("x0"), c.Inputs.Array("grads"), c.Inputs.Array("rates").Data
	runs := make([]*Training, 1)
	if c.Inputs.Has("matrices") {
		runs = make([]*Training, c.Inputs.Int("matrices"))
	}
	size := len(x.Data) / len(runs)
	part := func(data []float64, i int) []float64 { return data[i*size : (i+1)*size] }
	for i := range runs {
		runs[i] = m.Train(t, o, caseSettings(o.Describe(), c), Matrix(x.Shape[0]/len(runs), x.Shape[1]),
			part(x.Data, i))
		runs[i].RunSteps = len(rates)
		if c.Inputs.Has("steps") {
			runs[i].RunSteps = c.Inputs.Int("steps")
		}
	}
	var path, evaluated []float64
	for step, rate := range rates {
		gradient, sums := slices.Clone(grads.Row(step).Data), map[string]float64{}
		if c.Inputs.Has("slopes") {
			for i, r := range runs {
				slopes, constant := part(c.Inputs.Array("slopes").Data, i), slices.Clone(part(gradient, i))
				r.Slope = func(x []float64) []float64 {
					return floats.AddTo(make([]float64, len(x)), floats.MulTo(make([]float64, len(x)), slopes, x),
						constant)
				}
				copy(part(gradient, i), r.Slope(r.X()))
			}
		}
		for i, r := range runs {
			if c.Inputs.Has("sampled") {
				r.Sampled = part(c.Inputs.Array("sampled").Row(step).Data, i)
			}
			if c.Inputs.Has("losses") {
				r.Loss = c.Inputs.Array("losses").Data[step]
			}
			for name, v := range r.Collect(t, part(gradient, i), rate) {
				sums[name] += v
			}
		}
		for i, r := range runs {
			r.Global = sums
			r.Update(t, part(gradient, i), rate)
			path = append(path, r.X()...)
			evaluated = append(evaluated, r.Evaluated(t)...)
		}
	}
	m.Close(c.Expected, "x", path, single)
	if c.Expected.Has("evaluated") {
		m.Close(c.Expected, "evaluated", evaluated, single)
	}
}

// caseSettings returns the parameters of a case with the types declared by the description.
func caseSettings(d sdk.Description, c golden.Case) map[string]any {
	given := map[string]any{}
	for _, name := range c.Params.Keys() {
		i := slices.IndexFunc(d.Parameters, func(p sdk.Parameter) bool { return p.Name == name })
		switch {
		case i < 0: // reported by Settings
			given[name] = nil
		case d.Parameters[i].Type == sdk.TypeInt:
			given[name] = c.Params.Int(name)
		case d.Parameters[i].Type == sdk.TypeFloat:
			given[name] = c.Params.Float(name)
		case d.Parameters[i].Type == sdk.TypeBool:
			given[name] = c.Params.Bool(name)
		default:
			given[name] = c.Params.String(name)
		}
	}
	return given
}
