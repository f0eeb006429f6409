package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Names of the tensors of a step, in addition to those of package stage.
const (
	tokensName = network.Tokens
	lossName   = "loss"
	normsName  = "norms" // the squared norms of the gradients, in the order of the rules
)

// sumName returns the name of the gradient, summed over micro-batches, with respect to the tensor
// that the forward pass reads: the quantized value of a trained tensor, or the tensor itself.
func sumName(tensor string) string { return kindSum.Of(tensor) }

const (
	kindSum      program.Kind = "sum"
	kindResidual program.Kind = "residual"
)

func residualName(weight string, i int) string { return kindResidual.PartOf(weight, fmt.Sprint(i)) }

const codesPrefix = "codes/"

func codeName(weight string, i int) string { return fmt.Sprint(codesPrefix, weight, "/", i) }

func packedCodes(parameter string) string { return parameter + ".codes" }

func packedScale(parameter string) string { return parameter + ".scale" }

func nextName(state string) string { return "next/" + state }

func asNamed(tensor string) string { return tensor }

// numbered lists the values of a weight named name(weight, 0), name(weight, 1), …, up to the first
// that does not exist.
func numbered(
	in stage.Values, name func(weight string, i int) string, weight string,
) (list []program.Value) {
	for v, ok := in[name(weight, 0)]; ok; v, ok = in[name(weight, len(list))] {
		list = append(list, v)
	}
	return list
}

func floatShape(dims ...int) shapes.Shape { return shapes.Make(shapes.Float32, dims...) }

// Tensor is a named tensor of floats in host memory or, without Data, the name, shape and storage
// of a tensor of the plan.
type Tensor struct {
	Name    string
	Dims    []int
	Data    []float32
	Storage sdk.Storage // on the device
	Maximum bool        // of a quantizer's state: next states are reduced by max, not mean
	frozen  bool        // a parameter whose Storage is that of its own value alone
	packed  *fakequant.Packed
}

// inputSpecs describes tensors as inputs of a stage. name maps a tensor's name to the input's. If
// donated is set, the stage frees the tensors.
func inputSpecs(
	list []Tensor, name func(tensor string) string, donated bool,
) (specs []engine.Spec) {
	for _, t := range list {
		of := name(t.Name)
		if t.frozen && of != program.KindParam.Of(t.Name) {
			t.Storage, t.packed = sdk.StoreFloat32, nil
		}
		if p := t.packed; p != nil {
			specs = append(specs, engine.Spec{Name: packedCodes(of), Shape: p.Codes},
				engine.Spec{Name: packedScale(of), Shape: p.Scale})
			continue
		}
		shape := shapes.Make(stage.DType(t.Storage), t.Dims...)
		specs = append(specs, engine.Spec{Name: of, Shape: shape, Donated: donated})
	}
	return specs
}

func (p *Plan) params() []Tensor {
	return lists.Map(p.Model.Params(), func(param architecture.Param) Tensor {
		return Tensor{Name: param.Name, Dims: param.Dims, Storage: p.FrozenStorage,
			frozen: len(p.Adapters) > 0, packed: p.Packed[param.Name]}
	})
}

func (p *Plan) quantizedParams() []Tensor {
	return slices.DeleteFunc(p.params(), func(t Tensor) bool { return p.Weights[t.Name] == nil })
}

func (p *Plan) tensors() []Tensor { return slices.Concat(p.params(), p.factors(), p.Trained()) }

// forwardName returns a function from a parameter to the name of the tensor that the forward pass
// reads for it: its quantized value; what its quantizer would get if it is not quantized; or the
// parameter itself if full is set.
func (p *Plan) forwardName(full bool) func(parameter string) string {
	if full {
		return program.KindParam.Of
	}
	return func(parameter string) string {
		if _, ok := p.Weights[parameter]; ok {
			return program.KindValue.Of(parameter)
		}
		return p.quantizerInputName(parameter)
	}
}

func (p *Plan) batchDims() []int { return p.Model.BatchDims(p.Batch, p.Context) }

func (p *Plan) tokenSpec() engine.Spec {
	shape := shapes.Make(shapes.Int32, p.batchDims()...)
	return engine.Spec{Name: tokensName, Shape: shape, Sharded: true}
}

func (c *Compiled) put(t Tensor, data []float32) (*engine.Buffer, error) {
	return stage.Upload(c.dev, data, t.Storage, c.plan.divided(t.Name, t.Dims), t.Dims...)
}

// fill creates a tensor, sharded if it is divided, and calls write to set its elements.
func (c *Compiled) fill(
	name string, dims []int, write func([]float32) error,
) (*engine.Buffer, error) {
	if !c.plan.divided(name, dims) {
		return engine.Fill(c.dev, dims, write)
	}
	data := make([]float32, floatShape(dims...).Size())
	if err := write(data); err != nil {
		return nil, err
	}
	return engine.UploadSharded(c.dev, data, true, dims...)
}

// differentiated lists the parameters with respect to which the loss is differentiated: all or, if
// there are adapters, those that have one or whose quantizer has trained parameters.
func (p *Plan) differentiated() []Tensor {
	return slices.DeleteFunc(p.params(), func(t Tensor) bool {
		q, quantized := p.Weights[t.Name]
		trains := quantized && len(parametersOf(q, t.Name)) > 0
		return len(p.Adapters) > 0 && p.adapter(t.Name) == nil && !trains
	})
}

// quantizerInputName returns the name of the tensor that a weight's quantizer gets.
func (p *Plan) quantizerInputName(weight string) string {
	if p.adapter(weight) != nil {
		return program.KindMerged.Of(weight)
	}
	return program.KindParam.Of(weight)
}

// quantizeInputs lists the parameters that the quantize stage reads.
func (p *Plan) quantizeInputs() []Tensor {
	list := slices.DeleteFunc(p.params(), func(t Tensor) bool {
		return p.Weights[t.Name] == nil && p.adapter(t.Name) == nil
	})
	return append(list, p.factors()...)
}

// quantizerInput adds what the quantizer of a weight gets to in, unless that has it, and returns
// it.
func (p *Plan) quantizerInput(t Tensor, in stage.Values) program.Value {
	name := program.KindParam.Of(t.Name)
	x, ok := in[p.quantizerInputName(t.Name)]
	a := p.adapter(t.Name)
	if !t.frozen || a != nil && ok {
		return x
	}
	if x, _ = t.wide(name, in); a != nil {
		x = merge(*a, x, in[program.KindParam.Of(a.A().Name)], in[program.KindParam.Of(a.B().Name)])
	}
	in[p.quantizerInputName(t.Name)] = x
	return x
}
