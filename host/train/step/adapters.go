package step

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/sdk/program"
)

// With adapters (package lora), the parameters of the model are frozen, and the factors are trained
// in their place. The quantizers get merged weights, and the finish stage maps the gradient of a
// merged weight to those of its factors. Stages compute merged weights anew, one after the other,
// because all of them need as much memory as the model.

// adapter returns the adapter of a weight; nil if it has none.
func (p *Plan) adapter(weight string) *lora.Adapter {
	i := slices.IndexFunc(p.Adapters, func(a lora.Adapter) bool { return a.Weight == weight })
	if i < 0 {
		return nil
	}
	return &p.Adapters[i]
}

// factors lists the factors of the adapters, in the order of the parameters.
func (p *Plan) factors() (list []Tensor) {
	for _, a := range p.Adapters {
		for _, f := range []lora.Factor{a.A(), a.B()} {
			list = append(list, Tensor{Name: f.Name, Dims: f.Dims})
		}
	}
	return list
}

// frozen lists the parameters that are not trained, by their names in checkpoints: all if there are
// adapters, else none.
func (p *Plan) frozen() (list []Tensor) {
	if len(p.Adapters) > 0 {
		for _, t := range p.params() {
			name := program.KindParam.Of(t.Name)
			list = append(list, Tensor{Name: name, Dims: t.Dims, Storage: t.Storage, packed: t.packed})
		}
	}
	return list
}

// widen adds the frozen parameters that are stored in bfloat16, or as codes, in float32.
func (p *Plan) widen(in update.Nodes) {
	for _, t := range p.frozen() {
		if x := t.wide(t.Name, in, nil); x != nil {
			in[t.Name] = x
		}
	}
}

// wide returns a frozen parameter of a name in float32, on the CPU computed only after another
// node, unless that is nil. It returns nil if in does not have the parameter.
func (t Tensor) wide(name string, in update.Nodes, after *graph.Node) *graph.Node {
	if x := in[name]; x != nil {
		return graph.ConvertDType(x, dtypes.Float32)
	}
	if codes := in[packedCodes(name)]; codes != nil {
		return t.packed.Unpack(late(codes, after), in[packedScale(name)])
	}
	return nil
}

// pack stores a frozen parameter as codes and scales. It is an error if these do not stand for the
// same numbers.
func (c *Compiled) pack(t Tensor, x *engine.Buffer) (update.Tensors, error) {
	const input, wrong = "weight", "wrong"
	e, err := c.compileOnce("packed "+t.packed.ID, func() update.Stage {
		return update.Stage{Name: "packed", Inputs: inputSpecs([]Tensor{{Name: input, Dims: t.Dims}},
			asNamed, false), Build: func(in update.Nodes) update.Nodes {
			codes, scale, count := t.packed.Pack(in[input])
			return update.Nodes{packedCodes(input): codes, packedScale(input): scale, wrong: count}
		}}
	})
	if err != nil {
		return nil, err
	}
	out := update.Tensors{}
	if err := e.Run(out, update.Tensors{input: x}); err != nil {
		return nil, err
	}
	count, err := engine.Download[float32](out[wrong])
	if err == nil && count[0] > 0 {
		err = fmt.Errorf("%v of %d numbers of %s are not on the grid of its quantizer, so that they "+
			"cannot be stored as its codes: want the quantizer that `cage import` names for the model, "+
			"or another adapters.base", count[0], x.Shape().Size(), t.Name)
	}
	out[wrong].Finalize()
	if err != nil {
		engine.FinalizeAll(out[packedCodes(input)], out[packedScale(input)])
		return nil, err
	}
	return update.Tensors{packedCodes(t.Name): out[packedCodes(input)],
		packedScale(t.Name): out[packedScale(input)]}, nil
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

// pointName returns the name of the tensor that a weight's quantizer gets.
func (p *Plan) pointName(weight string) string {
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

// point adds what the quantizer of a weight gets to in, unless that has it, and returns it.
func (p *Plan) point(t Tensor, in update.Nodes, after *graph.Node) *graph.Node {
	name := program.KindParam.Of(t.Name)
	x, a := in[p.pointName(t.Name)], p.adapter(t.Name)
	if !t.frozen || a != nil && x != nil {
		return x
	}
	if x = t.wide(name, in, after); a != nil {
		x = merge(*a, x, in[program.KindParam.Of(a.A().Name)],
			late(in[program.KindParam.Of(a.B().Name)], after))
	}
	in[p.pointName(t.Name)] = x
	return x
}

// late returns x, on the CPU only after another node, unless that is nil. The Go backend computes
// at once what it can, in the memory of all of it; XLA has an order that needs little.
func late(x, after *graph.Node) *graph.Node {
	if after == nil || !engine.OnCPU(x.Graph()) {
		return x
	}
	return graph.SchedulingBarrier(x, after)
}

// mergedStage computes the merged weights, of which updates compute statistics; of a quantized
// weight without an adapter that is the weight.
func (p *Plan) mergedStage() update.Stage {
	specs := inputSpecs(p.quantizeInputs(), program.KindParam.Of, false)
	return update.Stage{Name: "merged", Inputs: specs, Build: func(in update.Nodes) update.Nodes {
		out := update.Nodes{}
		var last *graph.Node
		for _, t := range p.quantizedParams() {
			last = graph.Identity(p.point(t, in, last))
			out[program.KindMerged.Of(t.Name)] = last
		}
		return out
	}}
}

// addFactorGradients adds the gradients of a weight's factors to out, given that of the merged
// weight, and the errors of the factors if the method reads them.
func (p *Plan) addFactorGradients(a *lora.Adapter, d *graph.Node, in, out update.Nodes) {
	A, B := a.A().Name, a.B().Name
	adjoints := func(d *graph.Node, kind program.Kind) {
		out[kind.Of(A)], out[kind.Of(B)] = factorAdjoints(*a, d,
			in[program.KindParam.Of(A)], in[program.KindParam.Of(B)])
	}
	adjoints(d, program.KindGradient)
	i := slices.IndexFunc(p.Rules, func(r cage.Rule) bool { return r.Name == a.Weight })
	if r := p.Rules[i]; r.Quantizer != nil && len(r.Method.Modes()) > 0 {
		prog, err := cage.ErrorOf(r)
		if err != nil {
			panic(err)
		}
		e := lower.Lower(d.Graph(), prog, []*graph.Node{in[p.pointName(a.Weight)],
			in[program.KindValue.Of(a.Weight)]})[cage.InputError]
		adjoints(e, program.KindError)
	}
}

// SetFactors sets the initial factors of adapters, by their names. Others are drawn.
func (c *Compiled) SetFactors(values map[string][]float32) { c.factors = values }

// initFactors adds the initial factors to a state.
func (c *Compiled) initFactors(t update.Tensors) error {
	for _, a := range c.plan.Adapters {
		for _, f := range []lora.Factor{a.A(), a.B()} {
			b, err := engine.Fill(c.dev, f.Dims, func(values []float32) error {
				if copy(values, c.factors[f.Name]) == 0 {
					f.Draw(c.plan.Seed, values)
				}
				return nil
			})
			if err != nil {
				return err
			}
			t[program.KindParam.Of(f.Name)] = b
		}
	}
	return nil
}

// merge returns W = W₀ + s·B·A; see package lora.
func merge(a lora.Adapter, w, A, B *graph.Node) *graph.Node {
	product := eachPart(a, func(p lora.Part, row, rank int) *graph.Node {
		return scaledDot(p, block(B, row, len(p.Rows), p.Rank), 1, block(A, rank, p.Rank, a.In), 0)
	})
	return engine.Elementwise(func(of []*graph.Node) *graph.Node {
		return graph.Add(of[0], of[1])
	}, w, product)
}

// factorAdjoints returns s·Bᵀ·d and s·d·Aᵀ, the adjoints of the factors for d, the adjoint of W.
func factorAdjoints(a lora.Adapter, d, A, B *graph.Node) (dA, dB *graph.Node) {
	dA = eachPart(a, func(p lora.Part, row, _ int) *graph.Node {
		return scaledDot(p, block(B, row, len(p.Rows), p.Rank), 0, block(d, row, len(p.Rows), a.In), 0)
	})
	dB = eachPart(a, func(p lora.Part, row, rank int) *graph.Node {
		dB := scaledDot(p, block(d, row, len(p.Rows), a.In), 1, block(A, rank, p.Rank, a.In), 1)
		if unused := B.Shape().Dim(1) - p.Rank; unused > 0 {
			return graph.Pad(dB, graph.ScalarZero(dB.Graph(), dB.DType()), compute.PadAxis{},
				compute.PadAxis{End: unused})
		}
		return dB
	})
	return dA, dB
}

// eachPart concatenates the rows that of returns for each part, given the first of its rows in the
// weight and in A.
func eachPart(a lora.Adapter, of func(p lora.Part, row, rank int) *graph.Node) *graph.Node {
	var list []*graph.Node
	row, rank := 0, 0
	for _, p := range a.Parts {
		list = append(list, of(p, row, rank))
		row, rank = row+len(p.Rows), rank+p.Rank
	}
	if len(list) == 1 {
		return list[0]
	}
	return graph.Concatenate(list, 0)
}

func scaledDot(p lora.Part, x *graph.Node, xAxis int, y *graph.Node, yAxis int) *graph.Node {
	return graph.MulScalar(engine.ExactDot(x, []int{xAxis}, nil, y, []int{yAxis}, nil), p.Scale)
}

// block returns rows of x from the first on, and the first columns of them.
func block(x *graph.Node, first, rows, columns int) *graph.Node {
	if x.Shape().Dim(0) == rows && x.Shape().Dim(1) == columns {
		return x
	}
	return graph.Slice(x, graph.AxisRange(first, first+rows), graph.AxisRange(0, columns))
}

// MergeAdapter returns a weight with its adapter.
func MergeAdapter(dev *engine.Device, a lora.Adapter, w, A, B []float32) ([]float32, error) {
	tensors := []lora.Factor{{Name: "w", Dims: []int{a.B().Dims[0], a.In}}, a.A(), a.B()}
	var specs []engine.Spec
	var in []*engine.Buffer
	defer func() { engine.FinalizeAll(in...) }()
	for i, data := range [][]float32{w, A, B} {
		specs = append(specs, engine.Spec{Name: tensors[i].Name,
			Shape: floatShape(tensors[i].Dims...)})
		b, err := engine.Upload(dev, data, tensors[i].Dims...)
		if err != nil {
			return nil, err
		}
		in = append(in, b)
	}
	e, err := dev.Compile("merged adapter", specs,
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{merge(a, in[0], in[1], in[2])}
		})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	out, err := e.Run(in, make([]bool, len(in)))
	if err != nil {
		return nil, err
	}
	defer engine.FinalizeAll(out...)
	return engine.Download[float32](out[0])
}
