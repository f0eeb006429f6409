package step

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// quantizeStage maps the quantized parameters and the trained parameters of their quantizers to
// their values Q(x), rotated if the plan keeps them rotated, and residuals; in training also to the
// next states of the quantizers. It also returns those merged weights that the forward or the
// backward pass reads.
func (p *Plan) quantizeStage() stage.Stage {
	parameters, keys := append(p.quantizeInputs(), p.weightQuantizerParameters()...), p.keys.weights
	specs := slices.Concat(inputSpecs(parameters, program.KindParam.Of, false),
		inputSpecs(p.weightQuantizerStates(), asNamed, false),
		keySpecs(weightKeysName, keys), numberSpecs(p.Weights))
	stored := map[string]shapes.DType{}
	for _, codes := range p.codes {
		stored[codes[0].Name] = codes[0].Shape.DType
	}
	write := func(_ *program.Builder, in stage.Values) stage.Values {
		addKeys(in, weightKeysName, keys)
		out := stage.Values{}
		for _, k := range keys { // for updates that quantize again
			out[k.node] = in[k.node]
		}
		read := slices.DeleteFunc(p.params(), func(t Tensor) bool { return p.Weights[t.Name] != nil })
		for _, t := range append(read, p.unquantizedWeights()...) {
			if p.adapter(t.Name) != nil {
				out[p.quantizerInputName(t.Name)] = p.quantizerInput(t, in)
			}
		}
		for _, t := range p.quantizedParams() {
			q := p.Weights[t.Name]
			x, g := p.quantizerInput(t, in), given(q, t.Name, in)
			value, residuals, codes := q.Forward(x, g, len(p.codes[t.Name]) > 0)
			out[program.KindValue.Of(t.Name)] = value
			setNext(out, q, t.Name, q.Next(x, g), nextName)
			for i := range p.codes[t.Name] {
				out[codeName(t.Name, i)] = codes[i]
			}
			for i, r := range residuals {
				out[residualName(t.Name, i)] = r
			}
		}
		return out
	}
	return stage.Stage{Name: "quantize", Inputs: specs, Write: write, Stored: stored}
}

// setNext adds the next states of a quantizer, if it has any, to out. name returns the name of a
// state's next value.
func setNext(
	out stage.Values, q *fakequant.Quantizer, site string, next []program.Value,
	name func(state string) string,
) {
	for i, v := range next {
		out[name(statesOf(q, site)[i].Name)] = v
	}
}

// given returns the inputs of the quantizer of a site besides x, by their names.
func given(q *fakequant.Quantizer, site string, in stage.Values) fakequant.Given {
	addNumbers(in)
	g := fakequant.Given{spec.InputNoise: in[program.KindNoise.Of(site)],
		spec.InputSharedNoise: in[program.KindSharedNoise.Of(site)],
		spec.InputStep:        in[spec.InputStep], spec.InputSteps: in[spec.InputSteps]}
	for i, t := range parametersOf(q, site) {
		g[spec.TrainedPrefix+q.Trained()[i].Name] = in[program.KindParam.Of(t.Name)]
	}
	for i, s := range statesOf(q, site) {
		g[spec.KeptPrefix+q.State()[i].Name] = in[s.Name]
	}
	return g
}
