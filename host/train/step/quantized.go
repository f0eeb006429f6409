package step

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantized is a weight as returned by its quantizer's evaluation program.
type Quantized struct {
	Value []float32 // Q(x), not rotated, even if products use it rotated
	// Codes and Scale are nil if the program does not return them. With a rotation they belong to
	// the rotated weight.
	Codes      []int32
	Scale      []float32
	ScaleShape []int // broadcasts to the shape of the weight, or of its rows cut into groups
	// Rotation is the block size of the rotation that ends the program; 0 if there is none.
	Rotation int
}

// Quantized returns a weight as quantized for evaluation.
func (c *Compiled) Quantized(s *State, weight string) (*Quantized, error) {
	rule, err := c.quantizedRule(weight)
	if err != nil {
		return nil, err
	}
	specs, evaluation := quantizerInputs(rule), rule.Quantizer.ForEvaluation().Program
	p := lower.Only(evaluation, spec.OutputValue, spec.OutputCodes, spec.OutputScale)
	const prefix = "quantized/"
	t := maps.Clone(s.Tensors)
	err = c.runOnce(stage{"quantized " + weight, specs, func(g *graph.Graph, in update.Nodes) update.Nodes {
		args := make([]*graph.Node, len(specs))
		for i, spec := range specs {
			args[i] = in[spec.Name]
		}
		out := update.Nodes{}
		for name, node := range lower.Rows(g, p, args) {
			if name == spec.OutputCodes {
				node = graph.ConvertDType(node, dtypes.Int32)
			}
			out[prefix+name] = node
		}
		return out
	}}, t)
	if err != nil {
		return nil, err
	}
	defer keepState(s.Tensors, t)
	out := &Quantized{Rotation: passes.EndingRotation(evaluation, spec.OutputValue)}
	if out.Value, err = engine.Download[float32](t[prefix+spec.OutputValue]); err != nil {
		return nil, err
	}
	if b := t[prefix+spec.OutputCodes]; b != nil {
		if out.Codes, err = engine.Download[int32](b); err != nil {
			return nil, err
		}
	}
	if b := t[prefix+spec.OutputScale]; b != nil {
		out.ScaleShape = slices.Clone(b.Shape().Dimensions)
		out.Scale, err = engine.Download[float32](b)
	}
	return out, err
}

func (c *Compiled) quantizedRule(weight string) (cage.Rule, error) {
	for _, r := range c.plan.Rules {
		if r.Name == weight && r.Quantizer != nil {
			return r, nil
		}
	}
	return cage.Rule{}, fmt.Errorf("step: %s is no quantized weight", weight)
}

// quantizerInputs returns the inputs of a weight's quantizer: the weight, and the quantizer's
// trained parameters and state.
func quantizerInputs(rule cage.Rule) []engine.Spec {
	reads := []Tensor{{Name: program.KindParam.Of(rule.Name), Dims: rule.Shape}}
	for _, t := range rule.Quantizer.Trained {
		reads = append(reads, Tensor{Name: program.KindParam.Of(t.At(rule.Name)), Dims: t.Shape})
	}
	for _, s := range rule.Quantizer.State {
		reads = append(reads, Tensor{Name: program.KindQuantizerState.PartOf(rule.Name, s.Name), Dims: s.Shape})
	}
	return inputSpecs(reads, asNamed, false)
}

// Names of the tensors of an [activationStage].
const (
	activationName = "activation"
	valueName      = "value"
)

// activationStage maps an activation of this many tokens, and the trained parameters and state of
// its quantizer, to the quantized activation.
func activationStage(q lower.Quantizer, site model.ActivationSite, tokens int) stage {
	specs := []engine.Spec{{Name: activationName, Shape: floatShape(tokens, site.Width)}}
	specs = append(specs, inputSpecs(parametersOf(q, site.Name), program.KindParam.Of, false)...)
	specs = append(specs, inputSpecs(statesOf(q, site.Name), asNamed, false)...)
	return stage{activationName, specs, func(_ *graph.Graph, in update.Nodes) update.Nodes {
		return update.Nodes{valueName: lower.Quantize(in[activationName], given(q, site.Name, in), q)}
	}}
}

// quantize runs an [activationStage] in place on x, which has dimensions dims. t has the trained
// parameters and state of its quantizer.
func (e *executable) quantize(dev *engine.Device, t update.Tensors, x []float32, dims ...int) (err error) {
	if t[activationName], err = engine.Upload(dev, x, dims...); err != nil {
		return err
	}
	defer t[activationName].Finalize()
	if err := e.run(t); err != nil {
		return err
	}
	defer t[valueName].Finalize()
	return engine.DownloadInto(t[valueName], x)
}

// CodeReader reads the codes and residuals of chosen elements of quantized weights. It
// quantizes the weights anew and copies only those elements to the host.
//
// The codes are the integers that the quantizer's evaluation program returns, in the domain in
// which it quantizes: with a rotation, code i belongs to element i of the rotated weight. If the
// quantizer returns no codes, the bits of the value Q(x) replace them: two elements have the same
// code exactly when their values are equal, so a code also changes when only the scale does.
// Residuals are x − Q(x) of the unrotated weight, from which the correction is computed; with a
// rotation, residual i and code i belong to the same block, but not to the same element.
type CodeReader struct{ exec *executable }

// WeightElements selects elements of a weight by their flat indices.
type WeightElements struct {
	Weight    string
	Positions []int32
}

// CodeReader compiles a reader of the chosen elements: at least one of each weight named, all of
// which must be quantized.
func (c *Compiled) CodeReader(chosen []WeightElements) (*CodeReader, error) {
	rules := make([]cage.Rule, len(chosen))
	reads := make([][]engine.Spec, len(chosen)) // per weight, the inputs of its quantizer
	for i, e := range chosen {
		var err error
		if rules[i], err = c.quantizedRule(e.Weight); err != nil {
			return nil, err
		}
		reads[i] = quantizerInputs(rules[i])
		n := floatShape(rules[i].Shape...).Size()
		if len(e.Positions) == 0 || slices.Min(e.Positions) < 0 || int(slices.Max(e.Positions)) >= n {
			return nil, fmt.Errorf("step: codes of %s: want at least one position, all from 0 to %d", e.Weight, n-1)
		}
	}
	e, err := stage{"codes", slices.Concat(reads...), func(g *graph.Graph, in update.Nodes) update.Nodes {
		var codes, residuals []*graph.Node
		for i, r := range rules {
			var args []*graph.Node
			for _, spec := range reads[i] {
				args = append(args, in[spec.Name])
			}
			out := lower.Rows(g, lower.Only(r.Quantizer.ForEvaluation().Program, spec.OutputValue, spec.OutputCodes), args)
			code, value := out[spec.OutputCodes], out[spec.OutputValue]
			if code == nil {
				zero := graph.ScalarZero(g, value.DType())
				code = graph.Bitcast(graph.Where(graph.Equal(value, zero), zero, value), dtypes.Int32) // −0 is 0
			} else {
				code = graph.ConvertDType(code, dtypes.Int32)
			}
			at := engine.Constant(g, chosen[i].Positions, len(chosen[i].Positions), 1)
			elements := func(x *graph.Node) *graph.Node { return graph.Gather(graph.Reshape(x, x.Shape().Size()), at) }
			codes = append(codes, elements(code))
			residuals = append(residuals, graph.Sub(elements(args[0]), elements(value)))
		}
		return update.Nodes{"codes": graph.Concatenate(codes, 0), "residuals": graph.Concatenate(residuals, 0)}
	}}.compile(c)
	return &CodeReader{e}, err
}

// Close frees the executable.
func (r *CodeReader) Close() { r.exec.exec.Close() }

// Read returns the code and the residual of every chosen element, weight after weight.
func (r *CodeReader) Read(s *State) (codes []int32, residuals []float32, err error) {
	t := maps.Clone(s.Tensors)
	if err := r.exec.run(t); err != nil {
		return nil, nil, err
	}
	defer engine.FinalizeAll(t["codes"], t["residuals"])
	if codes, err = engine.Download[int32](t["codes"]); err != nil {
		return nil, nil, err
	}
	residuals, err = engine.Download[float32](t["residuals"])
	return codes, residuals, err
}
