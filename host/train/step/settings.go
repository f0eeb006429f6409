package step

import (
	"math"
	"time"
)

// Settings are what changes from step to step.
type Settings struct {
	Step           int     // t, from 1
	Rate, NextRate float64 // α_t and α_{t+1}
	Lambda         float64 // λ_t
	// Statistics asks for the error statistics, which cost two passes over the quantized
	// parameters.
	Statistics bool
	// ParetoSTE asks for ‖∇f(Q(x)) + ParetoLambda·e‖ over the quantized parameters, with
	// the gradient that training uses; it is not available in a training with
	// FullPrecision. Pareto asks for ‖∇f(x) + ParetoLambda·e‖, the measure of the paper's
	// theorem, which costs one more forward and backward pass in a quantized training.
	ParetoSTE, Pareto bool
	ParetoLambda      float64
}

// Result is what the host learns from a step.
type Result struct {
	// Loss is what training minimizes, as the mean over all tokens of the step.
	Loss float64
	// Divergence and CrossEntropy are the parts that Loss is made of, with a
	// distillation.
	Divergence, CrossEntropy float64
	// GradNorm is the global norm before clipping.
	GradNorm float64
	// GradNorms are the norms of single tensors, in the order of the plan's rules.
	GradNorms []float64
	// Skipped says that the loss or the norm was not finite and nothing changed.
	Skipped bool
	// FailedRefreshes names the tensors whose preconditioner could not be renewed and
	// stays as it was.
	FailedRefreshes []string
	// Uncorrected names the quantized tensors that got no correction because their
	// residual is not finite.
	Uncorrected []string
	// ErrorNorm2 and ValueNorm2 are Σe² and Σx² of each quantized parameter at x_t, if
	// Statistics is set.
	ErrorNorm2, ValueNorm2 []float64
	// ParetoSTE and Pareto are ‖∇f(Q(x)) + λ·e‖ and ‖∇f(x) + λ·e‖ over the
	// quantized parameters, when asked for; 0 when there are none.
	ParetoSTE, Pareto float64
	// Overhead is the time that was not spent on training, but on these measures and on waiting for readers of the state
	// ([State.Hold]).
	Overhead time.Duration
}

// setNorms notes the norms of gradients from their squares.
func (r *Result) setNorms(squares []float32) {
	total := 0.0
	r.GradNorms = make([]float64, len(squares))
	for i, v := range squares {
		total += float64(v)
		r.GradNorms[i] = math.Sqrt(float64(v))
	}
	r.GradNorm = math.Sqrt(total)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// checkFinite notes whether the step is to be skipped, and returns true when it goes on.
func (r *Result) checkFinite() bool {
	r.Skipped = !finite(r.Loss) || !finite(r.GradNorm)
	return !r.Skipped
}
