package step

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Plan describes the computation of a step. Shapes are static: in each micro-batch, each replica of
// the device reads Batch sequences of Context tokens, or the inputs of a model without tokens.
type Plan struct {
	Model model.Model
	// Batch is the number of sequences of a micro-batch per replica of the device.
	Batch, Context, Accumulate int
	// Weights and Activations hold the quantizers by the name of the parameter or activation site.
	// Tensors without an entry are not quantized. Evaluation replaces each quantizer by the result
	// of [fakequant.Quantizer.Evaluation].
	Weights, Activations map[string]*fakequant.Quantizer
	// Backward holds the quantizers of the operands of products in the backward pass; operands
	// without an entry are not quantized. Evaluation uses none of them.
	Backward map[OperandSite]fakequant.Operand
	// Seed and the step number determine the random bits of quantizers.
	Seed uint64
	// Pieces holds activation quantizers for [Decoder.Next], by the number of tokens per call. Each
	// entry is a map like Activations. They are used only for evaluation.
	Pieces map[int]map[string]*fakequant.Quantizer
	// Adapters lists the adapters of weights, in the model's order. If there are any, the parameters
	// of the model are frozen, and the factors are trained.
	Adapters []lora.Adapter
	// FrozenStorage is the type in which frozen parameters are stored.
	FrozenStorage sdk.Storage
	// Packed holds, by name, those frozen parameters that are stored as codes and scales.
	Packed map[string]*fakequant.Packed
	// Rules holds the update rules: one for every parameter, in the model's order, one for every
	// factor of an adapter, then one for every trained parameter of a quantizer, in the order of
	// [Plan.Trained]. The step sets their modes and statistics.
	Rules []cage.Rule
	// FullPrecision computes the gradient at x, without quantization; the method and the
	// evaluation may still quantize. Quantizers must then have no trained parameters and no state.
	FullPrecision bool
	// Distillation makes the model learn a teacher's predictions; nil means that it learns the tokens.
	Distillation *Distillation
	// Clip is the maximum global norm of the gradient; 0 means no clipping.
	Clip float64
	// RefreshDelay maps the name of a rule to the number of updates after which a due refresh takes
	// effect, except the first; see [refresh.CheckDelay]. The default is 0.
	RefreshDelay map[string]int
	// Opaque holds the optimizers that are not programs, by the names of their rules.
	Opaque map[string]Opaque
	// Search maps weights to the searches that compute states of their quantizers. It is set only in
	// training.
	Search map[string]Search
	// Unquantized gives x and W to the quantizers of the backward pass, instead of Q(x) and Q(W).
	Unquantized bool
	// FullRotations rotates every operand back. Otherwise operands of a product that have the same
	// rotation stay rotated where that saves rotations.
	FullRotations bool
	// Dispatch selects the number of executables that a step is compiled into.
	Dispatch Dispatch

	// Shard selects the tensors that are sharded across replicas of the device; none if empty.
	Shard device.Shard

	dev      *engine.Device
	replicas int                      // of the device
	codes    map[string][]engine.Spec // of weights that are multiplied by their codes; see findCodes
	keys     keys                     // see findKeys
}

func (p *Plan) check() error {
	tensors := p.tensors()
	if len(p.Rules) != len(tensors) {
		return fmt.Errorf("step: got %d update rules, want %d", len(p.Rules), len(tensors))
	}
	for i, r := range p.Rules {
		if r.Name != tensors[i].Name {
			return fmt.Errorf("step: rule %d is for %q, want %q", i, r.Name, tensors[i].Name)
		}
		if _, ok := p.Weights[r.Name]; ok != (r.Quantizer != nil) {
			return fmt.Errorf("step: %s: Plan.Weights and the rule differ in whether it is quantized",
				r.Name)
		}
		if _, ok := p.Opaque[r.Name]; ok != r.Optimizer.Opaque {
			return fmt.Errorf("step: the optimizer of %s is opaque: it works only in training, "+
				"where its process is running", r.Name)
		}
	}
	if err := p.checkColumns(); err != nil {
		return err
	}
	if len(p.Adapters) > 0 && (p.FullPrecision || len(p.Search) > 0) {
		return errors.New("step: adapters are trained neither with gradients in full precision nor " +
			"with quantizers that search")
	}
	_, language := p.Model.(model.Language)
	sampled := func(r cage.Rule) bool { return r.Optimizer.ProbeDue.First > 0 && r.Optimizer.Sampled }
	switch {
	case slices.ContainsFunc(p.Rules, sampled) && !language:
		return errors.New("step: an optimizer draws labels from a model's predictions, " +
			"but this model reads no sequences")
	case p.FullPrecision && len(p.Backward) > 0:
		return errors.New("step: gradients cannot be quantized in full-precision training")
	case p.FullPrecision && len(p.Trained())+len(p.quantizerStates()) > 0:
		return errors.New("step: full-precision training does not support quantizers " +
			"with trained parameters or state")
	case p.Distillation != nil && !language:
		return errors.New("step: a model that reads no sequences cannot learn a teacher's predictions")
	case p.Batch < 1 || p.Context < 1 || p.Accumulate < 1:
		return fmt.Errorf("step: batch %d, context %d, accumulate %d: each must be at least 1",
			p.Batch, p.Context, p.Accumulate)
	}
	return nil
}

// forEvaluation returns the plan with the quantizers of evaluation; nil if they are the same as in
// training.
func (p *Plan) forEvaluation() (*Plan, error) {
	e, differs := *p, false
	replace := func(list map[string]*fakequant.Quantizer) (map[string]*fakequant.Quantizer, error) {
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

// Trained lists the trained parameters of the quantizers: first those for weights, in the order of
// the parameters, then those for activations, in the order of the sites. Their names are unique in
// the plan, and are also the names of their rules and their names in checkpoints.
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

// ofWeights and ofActivations concatenate the results of list for each quantizer of weights, in the
// order of the parameters, or of activations, in the order of the sites.
func (p *Plan) ofWeights(list func(q *fakequant.Quantizer, site string) []Tensor) (all []Tensor) {
	for _, param := range p.Model.Params() {
		if q := p.Weights[param.Name]; q != nil {
			all = append(all, list(q, param.Name)...)
		}
	}
	return all
}

func (p *Plan) ofActivations(list func(q *fakequant.Quantizer, site string) []Tensor) (
	all []Tensor) {
	for _, site := range p.Model.ActivationSites(p.Batch, p.Context) {
		if q := p.Activations[site.Name]; q != nil {
			all = append(all, list(q, site.Name)...)
		}
	}
	return all
}

func parametersOf(q *fakequant.Quantizer, site string) []Tensor {
	return lists.Map(q.Trained(), func(t spec.Tensor) Tensor {
		return Tensor{Name: t.At(site), Dims: t.Shape}
	})
}

// quantizerStates lists the state tensors of the quantizers, with their names in checkpoints: first
// those for weights, then those for activations.
func (p *Plan) quantizerStates() []Tensor {
	return append(p.weightQuantizerStates(), p.activationQuantizerStates()...)
}

func (p *Plan) weightQuantizerStates() []Tensor { return p.ofWeights(statesOf) }

func (p *Plan) activationQuantizerStates() []Tensor { return p.ofActivations(statesOf) }

func statesOf(q *fakequant.Quantizer, site string) []Tensor {
	return lists.Map(q.State(), func(s spec.Tensor) Tensor {
		name := program.KindQuantizerState.PartOf(site, s.Name)
		return Tensor{Name: name, Dims: s.Shape, Maximum: s.Maximum}
	})
}

// Settings are the per-step settings.
type Settings struct {
	Step           int     // t, from 1
	Steps          int     // T, of the whole run
	Rate, NextRate float64 // α_t and α_{t+1}
	Lambda         float64 // λ_t, the coefficient of the method
	// Statistics requests the error statistics, which cost two passes over the quantized parameters.
	Statistics bool
	// ParetoSTE requests ‖∇f(Q(x)) + ParetoLambda·e‖ over the quantized parameters, unless
	// FullPrecision is set. Pareto requests ‖∇f(x) + ParetoLambda·e‖, the measure of the paper's
	// theorem, which costs one more forward and backward pass in quantized training.
	ParetoSTE, Pareto bool
	ParetoLambda      float64
}

// Result is the part of a step's results that the host reads.
type Result struct {
	// Loss is the training loss, the mean over all tokens of the step.
	Loss float64
	// Divergence and CrossEntropy are the components of Loss, if there is a distillation.
	Divergence, CrossEntropy float64
	// GradNorm is the global norm before clipping.
	GradNorm float64
	// GradNorms are the norms of individual tensors, in the order of the plan's rules.
	GradNorms []float64
	// Skipped is set if the loss or the norm was not finite, so that nothing changed.
	Skipped bool
	// FailedRefreshes names the tensors whose preconditioner could not be recomputed.
	FailedRefreshes []string
	// Uncorrected names the quantized tensors not corrected because their residual is not finite.
	Uncorrected []string
	// Counts holds the totals of the method's counters in the step, by name, over all tensors; nil if
	// it has none.
	Counts map[string]float64
	// Rates holds the learning rates of tensors whose optimizers compute their own, by name.
	Rates map[string]float64
	// ErrorNorm2 and ValueNorm2 are Σe² and Σx² of each quantized parameter at x_t, if
	// Statistics is set.
	ErrorNorm2, ValueNorm2 []float64
	// ParetoSTE and Pareto are ‖∇f(Q(x)) + λ·e‖ and ‖∇f(x) + λ·e‖ over the quantized parameters, if
	// requested; 0 if there are none.
	ParetoSTE, Pareto float64
	// Overhead is the time spent on these measures and on waiting for readers of the state
	// ([State.Hold]), not on training.
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

// checkFinite reports whether loss and norm are finite, and sets Skipped if not.
func (r *Result) checkFinite() bool {
	r.Skipped = !finite(r.Loss) || !finite(r.GradNorm)
	return !r.Skipped
}
