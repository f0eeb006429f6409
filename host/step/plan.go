package step

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk"
)

// Plan says what a step computes. Shapes are static: batch sequences of context
// tokens in each micro-batch.
type Plan struct {
	Model                      model.Model
	Batch, Context, Accumulate int
	// Weights and Activations hold the quantizers by the name of the parameter
	// and of the site; a name that is missing is not quantized.
	Weights, Activations map[string]lower.Quantizer
	// Rules holds the update rule of every parameter in the model's order, with
	// the form Off and without statistics; the step sets both as it needs.
	Rules []cage.Rule
	// Form and Variant of the correction when λ_t > 0.
	Form    cage.Form
	Variant cage.Variant
	// Clip is the largest global norm of the gradient; 0 does not clip.
	Clip float64
	// Update builds the graph of one rule; nil lowers the rule's program.
	Update UpdateFunc
}

// UpdateFunc builds the update of one tensor: from the rule's inputs by name to
// its outputs by name. It panics as graph building does.
type UpdateFunc func(rule cage.Rule, in map[string]*graph.Node) map[string]*graph.Node

// lowerRule is the UpdateFunc of training.
func lowerRule(rule cage.Rule, in map[string]*graph.Node) map[string]*graph.Node {
	p, err := rule.Program()
	if err != nil {
		panic(err)
	}
	args := make([]*graph.Node, len(p.Inputs))
	for i, input := range p.Inputs {
		args[i] = in[input.Name]
	}
	return lower.Lower(in[cage.InputX].Graph(), p, args)
}

// check fails when the parts of the plan do not fit together.
func (p *Plan) check() error {
	params := p.Model.Params()
	if len(p.Rules) != len(params) {
		return fmt.Errorf("step: %d update rules for %d parameters", len(p.Rules), len(params))
	}
	for i, r := range p.Rules {
		if r.Name != params[i].Name {
			return fmt.Errorf("step: rule %d is for %q, parameter %d is %q", i, r.Name, i, params[i].Name)
		}
		if _, ok := p.Weights[r.Name]; ok != (r.Quantizer != nil) {
			return fmt.Errorf("step: %s: the rule and the list of quantized weights disagree", r.Name)
		}
	}
	if p.Batch < 1 || p.Context < 1 || p.Accumulate < 1 {
		return fmt.Errorf("step: batch %d, context %d, accumulate %d: each must be at least 1", p.Batch, p.Context, p.Accumulate)
	}
	return nil
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

// Shapes of buffers.

func floats(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }

func (p *Plan) paramSpecs() []engine.Spec {
	var specs []engine.Spec
	for _, param := range p.Model.Params() {
		specs = append(specs, engine.Spec{Name: param.Name, Shape: floats(param.Dims...)})
	}
	return specs
}

func (p *Plan) tokenSpec() engine.Spec {
	return engine.Spec{Name: "tokens", Shape: shapes.Make(dtypes.Int32, p.Batch, p.Context+1)}
}

// StateSpecs lists the state tensors of every parameter.
func (p *Plan) StateSpecs() [][]sdk.StateTensor {
	specs := make([][]sdk.StateTensor, len(p.Rules))
	for i, r := range p.Rules {
		specs[i] = r.Optimizer.State
	}
	return specs
}
