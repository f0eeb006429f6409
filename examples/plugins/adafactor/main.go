// Command adafactor is Adafactor (Shazeer & Stern 2018, "Adafactor: Adaptive Learning Rates with
// Sublinear Memory Cost", Algorithms 4 and 5): Adam without momentum, with a second moment that is
// kept as the sums of its rows and columns, and with a rate in proportion to the weights.
//
//	V ← β̂·V + (1−β̂)·(g² + ε1)   β̂ = 1 − t^(−decay); of a matrix, means of rows and columns
//	w = g / √V
//	u = w / max(1, RMS(w)/threshold)
//	rate = α·max(ε2, RMS(x))
//
// α is the host's schedule. The rate is the optimizer's own, so that weight decay and correction
// are in proportion to it, too.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// adafactor implements [sdk.Optimizer] and [sdk.Pacer].
type adafactor struct{}

var _ sdk.Pacer = adafactor{}

// The names of the state tensors: means of the second moment's rows and columns, or the moment.
const (
	stateRows    = "rows"
	stateColumns = "columns"
	stateV       = "v"
)

// Describe declares the parameters, with the paper's defaults.
func (adafactor) Describe() sdk.Description {
	return sdk.Description{
		Name:    "adafactor",
		Version: "1.0.0",
		Doc: "Adafactor (Shazeer & Stern 2018): a factored second moment, and a rate in proportion " +
			"to the weights.",
		Parameters: []sdk.Parameter{
			sdk.Float("decay", 0.8, 0.1, 1, "the decay rate of the second moment is 1 − t^−decay"),
			sdk.Float("eps", 1e-30, 1e-35, 1, "added to the squares of the gradient"),
			sdk.Float("threshold", 1, 0.01, 1e6, "largest root mean square of a direction"),
			sdk.Float("least_scale", 1e-3, 1e-12, 1,
				"least root mean square of the weights that the rate follows"),
			sdk.Bool("scale_parameter", true,
				"the rate is in proportion to the root mean square of the weights"),
			sdk.Int("factor_from", 128, 1, math.MaxInt32,
				"matrices are factored if both sides are at least as long"),
		},
	}
}

// factored reports whether the second moment is kept in factors.
func factored(t sdk.Tensor) bool {
	least := t.Int("factor_from")
	return len(t.Shape) == 2 && min(t.Shape[0], t.Shape[1]) >= least
}

// Init starts the second moment at zero.
func (adafactor) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	if factored(t) {
		return sdk.State{stateRows: b.Zeros(t.Shape[0], 1), stateColumns: b.Zeros(1, t.Shape[1])}, nil
	}
	return sdk.State{stateV: b.Zeros(t.Shape...)}, nil
}

// Update writes the program of one step.
func (adafactor) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	take := in.Step.Pow(b.Const(-t.Float("decay"))) // 1 − β̂
	moment := func(name string, now program.Value) program.Value {
		return in.State[name].Mul(b.Const(1).Sub(take)).Add(now.Mul(take))
	}
	g := in.Gradient
	square := g.Square().Shift(t.Float("eps"))
	var next sdk.State
	var w program.Value
	if factored(t) {
		rows := moment(stateRows, square.MeanRow())
		columns := moment(stateColumns, square.ReduceSum(0).Scale(1/float64(t.Shape[0])).
			Reshape(1, t.Shape[1]))
		next = sdk.State{stateRows: rows, stateColumns: columns}
		mean := rows.SumAll().Scale(1 / float64(t.Shape[0]))
		w = g.Div(rows.Div(mean).Sqrt()).Div(columns.Sqrt()) // the factored V is rows·columns/mean
	} else {
		v := moment(stateV, square)
		next = sdk.State{stateV: v}
		w = g.Div(v.Sqrt())
	}
	return w.Div(rms(w).Scale(1 / t.Float("threshold")).Max(b.Const(1))), next, nil
}

// Rate is the schedule's, times the root mean square of the weights.
func (adafactor) Rate(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (program.Value, error) {
	if !t.Bool("scale_parameter") {
		return in.Rate, nil
	}
	return in.Rate.Mul(rms(in.X).Max(b.Const(t.Float("least_scale")))), nil
}

// rms is the root mean square of all elements.
func rms(v program.Value) program.Value {
	return v.Square().SumAll().Scale(1 / float64(v.Type().Size())).Sqrt()
}

func main() { sdk.ServeOptimizer(adafactor{}) }
