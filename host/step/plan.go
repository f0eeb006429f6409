package step

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk/program"
)

// Plan says what a step computes. Shapes are static: on each replica of the device
// batch sequences of context tokens in each micro-batch, or whatever else the model
// reads.
type Plan struct {
	Model model.Model
	// Batch is the part of a micro-batch that one of the device's replicas computes.
	Batch, Context, Accumulate int
	// Weights and Activations hold the quantizers by the name of the parameter
	// and of the site; a name that is missing is not quantized.
	Weights, Activations map[string]lower.Quantizer
	// Rules holds the update rule of every parameter in the model's order, and
	// after them of every trained parameter of a quantizer in the order of
	// [Plan.Trained], with the form Off and without statistics; the step sets
	// both as it needs.
	Rules []cage.Rule
	// Form and Variant of the correction when λ_t > 0.
	Form    cage.Form
	Variant cage.Variant
	// FullPrecision takes the gradient at x, without quantization; the correction
	// and evaluation have it. There may be no trained parameters of quantizers then.
	FullPrecision bool
	// Clip is the largest global norm of the gradient; 0 does not clip.
	Clip float64
	// Update builds the graph of one rule; nil lowers the rules' programs.
	Update UpdateFunc
	// RefreshDelay says by the name of a rule how many updates after the one at which
	// they are due refreshes take effect; see [CheckDelay]. They are computed beside
	// the updates between. The first of a rule is never late, nor is that of a
	// name that is missing.
	RefreshDelay map[string]int
	// Stacking says how those that are the same are lowered.
	Stacking Stacking
	// Rotations says what products do with operands that are rotated alike.
	Rotations Rotations
	// Dispatch says into how many executables the step is compiled.
	Dispatch Dispatch
}

// UpdateFunc builds the update of one tensor: from the rule's inputs by name to
// its outputs by name. It panics as graph building does.
type UpdateFunc func(rule cage.Rule, in map[string]*graph.Node) map[string]*graph.Node

// programArgs orders inputs by name as a program declares them.
func programArgs(p *program.Program, in map[string]*graph.Node) []*graph.Node {
	args := make([]*graph.Node, len(p.Inputs))
	for i, input := range p.Inputs {
		args[i] = in[input.Name]
	}
	return args
}

// check fails when the parts of the plan do not fit together.
func (p *Plan) check() error {
	tensors := p.tensorSpecs()
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
	if p.FullPrecision && len(p.Trained()) > 0 {
		return fmt.Errorf("step: quantizers with trained parameters in a training without quantization")
	}
	switch p.Stacking {
	case ByDevice, SideBySide, Together:
	default:
		return fmt.Errorf("step: stacking %q: use %s, %s or nothing", p.Stacking, SideBySide, Together)
	}
	switch p.Rotations {
	case "", HalfRotations, FullRotations:
	default:
		return fmt.Errorf("step: rotations %q: use %s, %s or nothing", p.Rotations, HalfRotations, FullRotations)
	}
	switch p.Dispatch {
	case DispatchByDevice, Chain, Whole:
	default:
		return fmt.Errorf("step: dispatch %q: use %s, %s or nothing", p.Dispatch, Chain, Whole)
	}
	if p.Batch < 1 || p.Context < 1 || p.Accumulate < 1 {
		return fmt.Errorf("step: batch %d, context %d, accumulate %d: each must be at least 1", p.Batch, p.Context, p.Accumulate)
	}
	return nil
}

// refreshes tells whether any optimizer renews preconditioners.
func (p *Plan) refreshes() bool {
	return slices.ContainsFunc(p.Rules, func(r cage.Rule) bool {
		return r.Optimizer.FirstRefresh != nil || r.Optimizer.Refresh != nil
	})
}

// quantized lists the positions of the quantized parameters.
func (p *Plan) quantized() []int {
	var at []int
	for i, param := range p.Model.Params() {
		if _, ok := p.Weights[param.Name]; ok {
			at = append(at, i)
		}
	}
	return at
}

// Trained is a trained parameter of a quantizer.
type Trained struct {
	Name  string // unique in the plan: that of its rule and in checkpoints
	Shape []int
	site  string // the parameter or the activation site that is quantized
}

// TrainedName is the name of the trained parameter t of the quantizer of a parameter
// or site.
func TrainedName(site, t string) string { return "quantizer." + site + "." + t }

// Trained lists the quantizers' trained parameters: those of weights in the order of
// the parameters, then those of activations in the order of the sites.
func (p *Plan) Trained() []Trained { return append(p.trainedWeights(), p.trainedActivations()...) }

func (p *Plan) trainedWeights() []Trained {
	var list []Trained
	for _, param := range p.Model.Params() {
		list = append(list, trainedOf(p.Weights[param.Name], param.Name)...)
	}
	return list
}

func (p *Plan) trainedActivations() []Trained {
	var list []Trained
	for _, site := range p.Model.ActivationSites(p.Batch, p.Context) {
		list = append(list, trainedOf(p.Activations[site.Name], site.Name)...)
	}
	return list
}

func trainedOf(q lower.Quantizer, site string) []Trained {
	if q == nil {
		return nil
	}
	var list []Trained
	for _, t := range q.Trained() {
		list = append(list, Trained{Name: TrainedName(site, t.Name), Shape: t.Shape, site: site})
	}
	return list
}

// Shapes of buffers.

func floats(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }

func (p *Plan) paramSpecs() []engine.Spec {
	var specs []engine.Spec
	for _, param := range p.Model.Params() {
		specs = append(specs, engine.Spec{Name: param.Name, Shape: floats(param.Dims...)})
	}
	return specs
}

func trainedSpecs(list []Trained) []engine.Spec {
	var specs []engine.Spec
	for _, t := range list {
		specs = append(specs, engine.Spec{Name: t.Name, Shape: floats(t.Shape...)})
	}
	return specs
}

// tensorSpecs lists everything that is trained: the model's parameters, then the
// quantizers'.
func (p *Plan) tensorSpecs() []engine.Spec {
	return append(p.paramSpecs(), trainedSpecs(p.Trained())...)
}

// batchDims are the dimensions of a micro-batch on one replica.
func (p *Plan) batchDims() []int { return p.Model.BatchDims(p.Batch, p.Context) }

func (p *Plan) tokenSpec() engine.Spec {
	return engine.Spec{Name: "tokens", Shape: shapes.Make(dtypes.Int32, p.batchDims()...), Sharded: true}
}
