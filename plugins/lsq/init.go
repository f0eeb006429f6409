package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// officialEps is added to the amplitude by the published code.
const officialEps = 1e-8

// InitTrained writes the initial step, a scalar or one per row (float[…,1]), and the initial
// offset, a scalar:
//
//	LSQ                       s = 2·mean|x|/√Q_P
//	LSQ, stableqat            s = max|x|/Q_P
//	LSQ+ weight               s = max(|μ − 3σ|, |μ + 3σ|)/2^(b−1)
//	LSQ+ activation           s = (max x − min x)/(Q_P + Q_N), β = min x + Q_N·s
//	LSQ+ weight, official     s = 2·(k_b·RMS(x) + 1e-8)/(2^b − 1)
//	LSQ+ activation, official s as for a weight, β = min x + Q_N·s
//
// σ is the population standard deviation. Steps are at least 1e-8, or 1e-5 in the stableqat form; a
// tensor of zeros gets that minimum. For activations, the LSQ+ paper searches for the values with
// the least squared error on the first batches; here the range of the first batch is used instead.
func (lsq) InitTrained(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	g, err := newGrid(site)
	if err != nil {
		return nil, err
	}
	unit := g.largest(x).Max(b.Const(g.smallestStep()))
	x = x.Div(unit) // so that no square or sum exceeds the range of binary32
	step, extra := g.initialStep(x)
	state := sdk.State{trainedStep: step.Mul(unit).Shift(extra).Max(b.Const(g.smallestStep()))}
	if hasOffset(site) {
		least := x.MinAll()
		state[trainedOffset] = least.Add(step.Scale(g.qn)).Mul(unit).Shift(g.qn * extra)
	}
	return state, nil
}

// initialStep returns the initial step without its constant term, extra, which the caller adds.
func (g grid) initialStep(x program.Value) (step program.Value, extra float64) {
	half := math.Ldexp(1, g.site.Int("bits")-1)
	switch {
	case g.stable():
		return g.largest(x).Scale(1 / g.qp), 0
	case g.site.Text("variant") == variantLSQ:
		return g.mean(x.Abs()).Scale(2 / math.Sqrt(g.qp)), 0
	case g.official():
		perAmplitude := 2 / (2*half - 1)
		return g.mean(x.Square()).Sqrt().Scale(microscaling.HalfIntegerFactors[g.site.Int(
			"bits")] * perAmplitude), officialEps * perAmplitude
	case g.weight():
		mean := g.mean(x)
		deviation := g.mean(x.Sub(mean).Square()).Sqrt()
		// The larger of |μ − 3σ| and |μ + 3σ| is |μ| + 3σ.
		return mean.Abs().Add(deviation.Scale(3)).Scale(1 / half), 0
	default:
		extent := x.MaxAll().Sub(x.MinAll())
		return extent.Scale(1 / (g.qp + g.qn)), 0
	}
}

// largest returns the largest magnitude among the numbers that share a step, shaped like mean.
func (g grid) largest(x program.Value) program.Value {
	if g.rows() {
		return x.Abs().MaxRow()
	}
	return x.Abs().MaxAll()
}

// mean returns the mean of the numbers that share a step: float[…,1] for rows, otherwise a scalar.
// Rows are averaged first, because a single running sum in binary32 over millions of numbers would
// lose digits.
func (g grid) mean(v program.Value) program.Value {
	v = v.MeanRow()
	if g.rows() {
		return v
	}
	return v.SumAll().Scale(float64(g.site.RowLen()) / float64(g.size()))
}
