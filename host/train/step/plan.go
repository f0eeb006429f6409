package step

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk/program"
)

// Plan says what a step computes. Shapes are static: in each micro-batch, each replica of
// the device reads Batch sequences of Context tokens, or whatever else the model reads.
type Plan struct {
	Model model.Model
	// Batch is the number of sequences of a micro-batch that one replica of the device
	// computes.
	Batch, Context, Accumulate int
	// Weights and Activations hold the quantizers, by the name of the parameter or of the
	// activation site. What has no entry is not quantized. Evaluation uses those that
	// [lower.Quantizer.Evaluation] returns in their places.
	Weights, Activations map[string]lower.Quantizer
	// Backward holds the quantizers of the operands of products in the backward pass; what
	// has no entry stays as it is. Evaluations have none.
	Backward map[OperandSite]lower.Operand
	// Seed determines the random bits of quantizers, with the number of the step.
	Seed uint64
	// Pieces holds the quantizers of activations for [Decoder.Next], by the number of tokens that
	// it is given. Each entry is a map like Activations. They are used for evaluation only.
	Pieces map[int]map[string]lower.Quantizer
	// Rules holds the update rules: one for every parameter, in the model's order, then
	// one for every trained parameter of a quantizer, in the order of [Plan.Trained].
	// They are without mode and statistics; the step sets both as it needs.
	Rules []cage.Rule
	// FullPrecision takes the gradient at x, without quantization; the method and the
	// evaluation may still quantize. Quantizers may then have no trained parameters and no state.
	FullPrecision bool
	// Distillation makes the model learn what a teacher predicts; nil means that it
	// learns the tokens.
	Distillation *Distillation
	// Clip is the largest global norm of the gradient; 0 means no clipping.
	Clip float64
	// RefreshDelay says, by the name of a rule, how many updates after they are due its
	// refreshes take effect; see [refresh.CheckDelay]. They are computed while the updates in
	// between run. The first refresh of a rule is never late, and neither are those of
	// rules without an entry.
	RefreshDelay map[string]int
	// Opaque holds the optimizers that are no programs, by the names of their rules.
	Opaque map[string]Opaque
	// Search finds the states of quantizers that search, by the names of their weights. Only
	// trainings have it.
	Search map[string]Search
	// OneGraph runs updates as one graph, also on the CPU; see [update.Options].
	OneGraph bool
	// Unquantized quantizes x and W for the products of the backward pass, in the place of Q(x) and
	// Q(W).
	Unquantized bool
	// Rotations says what products do with operands that are rotated alike.
	Rotations Rotations
	// Dispatch says into how many executables the step is compiled.
	Dispatch Dispatch

	// Shard says what several replicas of the device divide among them; nothing if it is empty.
	Shard device.Shard

	replicas int                      // of the device
	codes    map[string][]engine.Spec // of weights that products multiply by their codes; see findCodes
}

func (p *Plan) check() error {
	tensors := p.tensors()
	if len(p.Rules) != len(tensors) {
		return fmt.Errorf("step: %d update rules for %d parameters", len(p.Rules), len(tensors))
	}
	for i, r := range p.Rules {
		if r.Name != tensors[i].Name {
			return fmt.Errorf("step: rule %d is for %q, parameter %d is %q", i, r.Name, i, tensors[i].Name)
		}
		if _, ok := p.Weights[r.Name]; ok != (r.Quantizer != nil) {
			return fmt.Errorf("step: %s: the rule and the list of quantized weights disagree", r.Name)
		}
	}
	for _, r := range p.Rules {
		if _, ok := p.Opaque[r.Name]; ok != r.Optimizer.Opaque {
			return fmt.Errorf("step: the optimizer of %s is opaque: it works in trainings only, where its process is running", r.Name)
		}
	}
	if err := p.checkColumns(); err != nil {
		return err
	}
	if _, ok := p.Model.(model.Language); p.probesEver(true) && !ok {
		return fmt.Errorf("step: an optimizer draws labels from what a model predicts, and this model reads no sequences")
	}
	if p.FullPrecision && len(p.Backward) > 0 {
		return fmt.Errorf("step: quantized gradients in a training without quantization")
	}
	if p.FullPrecision && len(p.Trained())+len(p.quantizerStates()) > 0 {
		return fmt.Errorf("step: quantizers with trained parameters or state in a training without quantization")
	}
	if _, ok := p.Model.(model.Language); p.Distillation != nil && !ok {
		return fmt.Errorf("step: a model that reads no sequences cannot learn what a teacher predicts")
	}
	if p.Batch < 1 || p.Context < 1 || p.Accumulate < 1 {
		return fmt.Errorf("step: batch %d, context %d, accumulate %d: each must be at least 1", p.Batch, p.Context, p.Accumulate)
	}
	return nil
}

// forEvaluation returns the plan with the quantizers of evaluation, nil if they are those of
// training.
func (p *Plan) forEvaluation() (*Plan, error) {
	e, differs := *p, false
	replace := func(list map[string]lower.Quantizer) (map[string]lower.Quantizer, error) {
		list = maps.Clone(list)
		for name, q := range list {
			other, err := q.Evaluation()
			if err != nil {
				return nil, fmt.Errorf("step: %s: %w", name, err)
			}
			if other != nil {
				list[name], differs = other, true
			}
		}
		return list, nil
	}
	var err error
	if e.Weights, err = replace(p.Weights); err != nil {
		return nil, err
	}
	if e.Activations, err = replace(p.Activations); err != nil {
		return nil, err
	}
	e.Pieces = maps.Clone(p.Pieces)
	for tokens, list := range p.Pieces {
		if e.Pieces[tokens], err = replace(list); err != nil {
			return nil, err
		}
	}
	if !differs {
		return nil, nil
	}
	return &e, nil
}

// Trained lists the trained parameters of the quantizers: first those for weights, in the
// order of the parameters, then those for activations, in the order of the sites. Their
// names are unique in the plan; they are also the names of their rules and their names in
// checkpoints.
func (p *Plan) Trained() []Tensor {
	return distinct(append(p.weightQuantizerParameters(), p.activationQuantizerParameters()...))
}

func distinct(list []Tensor) []Tensor {
	var out []Tensor
	for _, t := range list {
		if !slices.ContainsFunc(out, func(o Tensor) bool { return o.Name == t.Name }) {
			out = append(out, t)
		}
	}
	return out
}

func (p *Plan) weightQuantizerParameters() []Tensor { return distinct(p.ofWeights(parametersOf)) }

func (p *Plan) activationQuantizerParameters() []Tensor {
	return distinct(p.ofActivations(parametersOf))
}

// ofWeights and ofActivations join what list gives for each quantizer of weights, in the order of
// the parameters, or of activations, in the order of the sites.
func (p *Plan) ofWeights(list func(q lower.Quantizer, site string) []Tensor) (all []Tensor) {
	for _, param := range p.Model.Params() {
		if q := p.Weights[param.Name]; q != nil {
			all = append(all, list(q, param.Name)...)
		}
	}
	return all
}

func (p *Plan) ofActivations(list func(q lower.Quantizer, site string) []Tensor) (all []Tensor) {
	for _, site := range p.Model.ActivationSites(p.Batch, p.Context) {
		if q := p.Activations[site.Name]; q != nil {
			all = append(all, list(q, site.Name)...)
		}
	}
	return all
}

func parametersOf(q lower.Quantizer, site string) []Tensor {
	var list []Tensor
	for _, t := range q.Trained() {
		list = append(list, Tensor{Name: t.At(site), Dims: t.Shape})
	}
	return list
}

// quantizerStates lists the state tensors of the quantizers, with their names in checkpoints: first
// those for weights, then those for activations.
func (p *Plan) quantizerStates() []Tensor {
	return append(p.weightQuantizerStates(), p.activationQuantizerStates()...)
}

func (p *Plan) weightQuantizerStates() []Tensor { return p.ofWeights(statesOf) }

func (p *Plan) activationQuantizerStates() []Tensor { return p.ofActivations(statesOf) }

func statesOf(q lower.Quantizer, site string) []Tensor {
	var list []Tensor
	for _, s := range q.State() {
		list = append(list, Tensor{Name: program.KindQuantizerState.PartOf(site, s.Name), Dims: s.Shape, Maximum: s.Maximum})
	}
	return list
}

// Settings are what changes from step to step.
type Settings struct {
	Step           int     // t, from 1
	Steps          int     // T, of the whole run
	Rate, NextRate float64 // α_t and α_{t+1}
	Lambda         float64 // λ_t, the strength of the method
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
	// Uncorrected names the quantized tensors that the method left alone because their
	// residual is not finite.
	Uncorrected []string
	// Counts are what the method has counted in the step, by name, over all tensors; nil if it
	// counted nothing.
	Counts map[string]float64
	// Rates are those of the tensors whose optimizers have rates of their own, by name.
	Rates map[string]float64
	// ErrorNorm2 and ValueNorm2 are Σe² and Σx² of each quantized parameter at x_t, if
	// Statistics is set.
	ErrorNorm2, ValueNorm2 []float64
	// ParetoSTE and Pareto are ‖∇f(Q(x)) + λ·e‖ and ‖∇f(x) + λ·e‖ over the
	// quantized parameters, when asked for; 0 when there are none.
	ParetoSTE, Pareto float64
	// Overhead is the time that was not spent on training, but on these measures and on waiting for
	// readers of the state ([State.Hold]).
	Overhead time.Duration
}

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

// checkFinite returns whether loss and norm are finite. If not, the result says that the step is
// skipped.
func (r *Result) checkFinite() bool {
	r.Skipped = !finite(r.Loss) || !finite(r.GradNorm)
	return !r.Skipped
}
