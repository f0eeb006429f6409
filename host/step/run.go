package step

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
)

// Settings are what changes from step to step.
type Settings struct {
	Step           int     // t, from 1
	Rate, NextRate float64 // α_t and α_{t+1}
	Lambda         float64 // λ_t
	// Statistics asks for the error statistics, which cost two passes over the
	// quantized parameters.
	Statistics bool
	// Pareto asks for the length of ∇f(Q(x)) + ParetoLambda·e over the
	// quantized parameters, from the gradient that training has; in a training in
	// full precision there is no such gradient. FullPareto asks for that with
	// ∇f(x), which costs a forward and a backward pass where training has another
	// gradient.
	Pareto, FullPareto bool
	ParetoLambda       float64
}

// Result is what the host learns of a step.
type Result struct {
	// Loss is the mean over all tokens of the step.
	Loss float64
	// GradNorm is the global norm before clipping.
	GradNorm float64
	// Skipped tells that loss or norm was not finite and nothing changed.
	Skipped bool
	// FailedRefreshes names the tensors whose preconditioner could not be renewed
	// and stays as it was.
	FailedRefreshes []string
	// Uncorrected names the quantized tensors that got no correction, as their residual
	// is not finite.
	Uncorrected []string
	// ErrorNorm2 and ValueNorm2 are Σe² and Σx² of each quantized parameter at
	// x_t, with Statistics.
	ErrorNorm2, ValueNorm2 []float64
	// ParetoSTE and Pareto are ‖∇f(Q(x)) + λ·e‖ and ‖∇f(x) + λ·e‖ over the
	// quantized parameters, when asked for; 0 when there are none.
	ParetoSTE, Pareto float64
}

// Step runs one optimizer step on accumulate micro-batches, each the flat
// [batch, context+1] token ids. Parameters and states are replaced in s. When the
// loss or the gradient's norm is not finite, s keeps its values, be it in new buffers,
// and the result says Skipped. After an error during the update s is not whole: its
// buffers were given away ([State.Whole]).
func (k *Kernels) Step(s *State, batches [][]int32, set Settings) (Result, error) {
	b, err := k.Load(batches)
	if err != nil {
		return Result{}, err
	}
	return k.Run(s, b, set)
}

// Run is [Kernels.Step] with micro-batches that were loaded before, and that are gone
// when it returns.
func (k *Kernels) Run(s *State, b *Batches, set Settings) (Result, error) {
	defer b.Close()
	if k.runsWhole(s, set) {
		return k.runWhole(s, b, set)
	}
	return k.runChain(s, b, set)
}

// runChain runs a step as a chain of executables.
func (k *Kernels) runChain(s *State, batches *Batches, set Settings) (res Result, err error) {
	q := &quantizedWeights{at: k.plan.quantized()}
	if k.needsQuantized(q, set) {
		if q, err = k.runQuantize(s); err != nil {
			return res, err
		}
	}
	defer q.close()
	loss, sums, err := k.runGradients(s, q, batches, gradientKey{full: k.plan.FullPrecision})
	if err != nil {
		return res, err
	}
	grads, norm, err := k.runFinish(s, q, sums)
	if err != nil {
		return res, err
	}
	defer func() { engine.FinalizeAll(grads...) }()
	res.Loss, res.GradNorm = loss, norm
	if !finite(loss) || !finite(norm) {
		res.Skipped = true
		return res, nil
	}
	if err := k.measurePareto(s, q, grads, batches, set, &res); err != nil {
		return res, err
	}
	s.torn = true
	observed, err := k.refresh(s, q, grads, set, &res)
	if err != nil {
		return res, err
	}
	if err := k.runUpdate(s, q, grads, set, observed, &res); err != nil {
		return res, err
	}
	s.torn = false
	return res, nil
}

// needsQuantized tells whether a step reads Q(x): for the gradient, the correction
// or a measure.
func (k *Kernels) needsQuantized(q *quantizedWeights, set Settings) bool {
	return !k.plan.FullPrecision || set.Statistics || set.Pareto || set.FullPareto || k.form(q, set) != cage.Off
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// quantizedWeights are the outputs of the quantize executable: values as products use
// them, rotated where the rule's Rotation says so.
type quantizedWeights struct {
	at                []int // positions of the quantized parameters
	values, residuals []*engine.Buffer
}

func (q *quantizedWeights) close() {
	engine.FinalizeAll(q.values...)
	engine.FinalizeAll(q.residuals...)
}

func (k *Kernels) runQuantize(s *State) (*quantizedWeights, error) {
	q := &quantizedWeights{at: k.plan.quantized()}
	if k.quantize == nil {
		return q, nil
	}
	out, err := k.quantize.Run(append(pick(s.Params, q.at), k.trainedWeights(s)...), nil)
	if err != nil {
		return nil, err
	}
	q.values, q.residuals = out[:len(q.at)], out[len(q.at):]
	return q, nil
}

// trainedWeights are the buffers of the trained parameters of the weights' quantizers.
func (k *Kernels) trainedWeights(s *State) []*engine.Buffer {
	return ofWeights(k, s.Params)
}

// Of lists over everything that is trained, buffers or nodes: ofWeights are the trained
// parameters of the weights' quantizers, and used are the inputs of a forward pass
// before the tokens, given the values of the quantized weights.

func ofWeights[T any](k *Kernels, trained []T) []T {
	n := len(k.plan.Model.Params())
	return trained[n : n+k.ownTrained : n+k.ownTrained]
}

func used[T any](k *Kernels, trained, quantized []T) []T {
	out := slices.Clone(trained[:len(k.plan.Model.Params())])
	for i, j := range k.plan.quantized()[:len(quantized)] {
		out[j] = quantized[i]
	}
	return append(out, trained[len(trained)-k.siteTrained:]...)
}

func pick[T any](list []T, at []int) []T {
	out := make([]T, len(at))
	for i, j := range at {
		out[i] = list[j]
	}
	return out
}

// forward are the inputs of a forward pass before the tokens: the model's weights,
// quantized where they are, and the trained parameters of activations' quantizers.
func (k *Kernels) forward(s *State, q *quantizedWeights) []*engine.Buffer {
	return used(k, s.Params, q.values)
}

// weights are the model's weights, quantized where they are.
func (k *Kernels) weights(s *State, q *quantizedWeights) []*engine.Buffer {
	return used(k, s.Params, q.values)[:len(k.plan.Model.Params())]
}

// runGradients runs all micro-batches and returns the mean loss and the summed
// gradients of the used weights. With key.full the parameters themselves are used.
func (k *Kernels) runGradients(s *State, q *quantizedWeights, b *Batches, key gradientKey) (float64, []*engine.Buffer, error) {
	weights := s.Params[:len(k.plan.Model.Params())]
	if !key.full {
		weights = k.forward(s, q)
	}
	batches, err := b.separate()
	if err != nil {
		return 0, nil, err
	}
	total := 0.0
	var sums []*engine.Buffer
	for i, tokens := range batches {
		key.sum = i > 0
		exec, err := k.gradient(key)
		if err != nil {
			engine.FinalizeAll(sums...)
			return 0, nil, err
		}
		loss, next, err := k.runGradient(exec, weights, tokens, sums)
		if err != nil {
			return 0, nil, err
		}
		total, sums = total+loss, next
	}
	return total / float64(len(batches)), sums, nil
}

// runGradient runs one micro-batch; the sums are given away.
func (k *Kernels) runGradient(exec *engine.Executable, weights []*engine.Buffer, tokens *engine.Buffer, sums []*engine.Buffer) (float64, []*engine.Buffer, error) {
	in := append(append([]*engine.Buffer(nil), weights...), tokens)
	donate := make([]bool, len(in)+len(sums))
	for i := len(in); i < len(donate); i++ {
		donate[i] = true
	}
	out, err := exec.Run(append(in, sums...), donate)
	if err != nil {
		engine.FinalizeAll(sums...)
		return 0, nil, err
	}
	defer out[0].Finalize()
	loss, err := engine.Scalar[float32](out[0])
	if err != nil {
		engine.FinalizeAll(out[1:]...)
		return 0, nil, err
	}
	return float64(loss), out[1:], nil
}

// runFinish returns the gradients of the parameters and their global norm; the sums
// and residuals are given away.
func (k *Kernels) runFinish(s *State, q *quantizedWeights, sums []*engine.Buffer) ([]*engine.Buffer, float64, error) {
	in := append([]*engine.Buffer(nil), sums...)
	residuals := 0
	if !k.plan.FullPrecision {
		in = append(append(in, pick(s.Params, q.at)...), k.trainedWeights(s)...)
		in = append(append(in, q.values...), q.residuals...)
		residuals = len(q.residuals)
	}
	donate := make([]bool, len(in))
	for i := range donate {
		donate[i] = i < len(sums) || i >= len(in)-residuals
	}
	exec, err := k.finish()
	var out []*engine.Buffer
	if err == nil {
		out, err = exec.Run(in, donate)
	}
	if err != nil {
		engine.FinalizeAll(sums...)
		return nil, 0, err
	}
	last := out[len(out)-1]
	defer last.Finalize()
	norm, err := sumOf(last)
	if err != nil {
		engine.FinalizeAll(out...)
		return nil, 0, err
	}
	return out[:len(out)-1], math.Sqrt(norm), nil
}

// sumOf adds up a float vector in float64.
func sumOf(b *engine.Buffer) (float64, error) {
	values, err := engine.Download[float32](b)
	total := 0.0
	for _, v := range values {
		total += float64(v)
	}
	return total, err
}
