package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
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

// widen adds the frozen parameters that are stored as codes.
func (p *Plan) widen(in stage.Values) {
	for _, t := range p.frozen() {
		if x, ok := t.wide(t.Name, in); ok {
			in[t.Name] = x
		}
	}
}

// wide returns a frozen parameter of a name. ok is false if in does not have it.
func (t Tensor) wide(name string, in stage.Values) (x program.Value, ok bool) {
	if x, ok = in[name]; ok {
		return x, true
	}
	codes, ok := in[packedCodes(name)]
	if ok {
		x = t.packed.Unpack(codes, in[packedScale(name)])
	}
	return x, ok
}

// pack stores a frozen parameter as codes and scales. It is an error if these do not stand for the
// same numbers.
func (c *Compiled) pack(t Tensor, x *engine.Buffer) (stage.Tensors, error) {
	const input, wrong = "weight", "wrong"
	matrix := inputSpecs([]Tensor{{Name: input, Dims: t.Dims}}, asNamed, false)
	e, err := c.compileOnce("packed "+t.packed.ID, func() stage.Stage {
		return stage.Stage{Name: "packed", Inputs: matrix,
			Stored: map[string]shapes.DType{packedCodes(input): t.packed.Codes.DType,
				packedScale(input): t.packed.Scale.DType},
			Write: func(_ *program.Builder, in stage.Values) stage.Values {
				codes, scale := t.packed.Pack(in[input])
				return stage.Values{packedCodes(input): codes, packedScale(input): scale}
			}}
	})
	if err != nil {
		return nil, err
	}
	check, err := c.compileOnce("unpacked "+t.packed.ID, func() stage.Stage {
		packed := inputSpecs([]Tensor{{Name: input, packed: t.packed}}, asNamed, false)
		return stage.Stage{Name: "unpacked", Inputs: append(slices.Clone(matrix), packed...),
			Write: func(_ *program.Builder, in stage.Values) stage.Values {
				same := in[input].Eq(t.packed.Unpack(in[packedCodes(input)], in[packedScale(input)]))
				return stage.Values{wrong: same.Not().Convert(program.Float).SumAll()}
			}}
	})
	if err != nil {
		return nil, err
	}
	out := stage.Tensors{}
	if err = e.Run(out, stage.Tensors{input: x}); err == nil {
		err = check.Run(out, stage.Tensors{input: x})
	}
	if err != nil {
		out.Finalize()
		return nil, err
	}
	count, err := engine.Download[float32](out[wrong])
	if err == nil && count[0] > 0 {
		err = fmt.Errorf("%v of %d numbers of %s are not on the grid of its quantizer, so they "+
			"cannot be stored as its codes: want the quantizer that `cage import` names for the model, "+
			"or another adapters.base", count[0], x.Shape().Size(), t.Name)
	}
	out[wrong].Finalize()
	if err != nil {
		engine.FinalizeAll(out[packedCodes(input)], out[packedScale(input)])
		return nil, err
	}
	return stage.Tensors{packedCodes(t.Name): out[packedCodes(input)],
		packedScale(t.Name): out[packedScale(input)]}, nil
}

// mergedStage computes the merged weights, of which updates compute statistics; of a quantized
// weight without an adapter that is the weight.
func (p *Plan) mergedStage() stage.Stage {
	specs := inputSpecs(p.quantizeInputs(), program.KindParam.Of, false)
	return stage.Stage{Name: "merged", Inputs: specs,
		Write: func(_ *program.Builder, in stage.Values) stage.Values {
			out := stage.Values{}
			for _, t := range p.quantizedParams() {
				out[program.KindMerged.Of(t.Name)] = p.quantizerInput(t, in)
			}
			return out
		}}
}

// addFactorGradients adds the gradients of a weight's factors to out, given that of the merged
// weight, and the errors of the factors if the method reads them.
func (p *Plan) addFactorGradients(a *lora.Adapter, d program.Value, in, out stage.Values) {
	A, B := a.A().Name, a.B().Name
	adjoints := func(d program.Value, kind program.Kind) {
		out[kind.Of(A)], out[kind.Of(B)] = factorAdjoints(*a, d,
			in[program.KindParam.Of(A)], in[program.KindParam.Of(B)])
	}
	adjoints(d, program.KindGradient)
	i := slices.IndexFunc(p.Rules, func(r cage.Rule) bool { return r.Name == a.Weight })
	if r := p.Rules[i]; r.Quantizer != nil && len(r.Method.Modes()) > 0 {
		prog, err := cage.ErrorOf(r)
		if err != nil {
			d.Builder().Fail(err)
			return
		}
		e := transform.Inline(d.Builder(), prog, in[p.quantizerInputName(a.Weight)],
			in[program.KindValue.Of(a.Weight)])[cage.InputError]
		adjoints(e, program.KindError)
	}
}

// SetFactors sets the initial factors of adapters, by their names. Others are drawn.
func (c *Compiled) SetFactors(values map[string][]float32) { c.factors = values }

// initFactors adds the initial factors to a state.
func (c *Compiled) initFactors(t stage.Tensors) error {
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
func merge(a lora.Adapter, w, A, B program.Value) program.Value {
	return w.Add(eachPart(a, func(p lora.Part, row, rank int) program.Value {
		return scaledDot(p, block(B, row, len(p.Rows), p.Rank), 1, block(A, rank, p.Rank, a.In), 0)
	}))
}

// factorAdjoints returns s·Bᵀ·d and s·d·Aᵀ, the adjoints of the factors for d, the adjoint of W.
func factorAdjoints(a lora.Adapter, d, A, B program.Value) (dA, dB program.Value) {
	dA = eachPart(a, func(p lora.Part, row, _ int) program.Value {
		return scaledDot(p, block(B, row, len(p.Rows), p.Rank), 0, block(d, row, len(p.Rows), a.In), 0)
	})
	dB = eachPart(a, func(p lora.Part, row, rank int) program.Value {
		dB := scaledDot(p, block(d, row, len(p.Rows), a.In), 1, block(A, rank, p.Rank, a.In), 1)
		if unused := B.Shape()[1] - p.Rank; unused > 0 {
			return dB.Concatenate(1, B.Builder().Zeros(len(p.Rows), unused))
		}
		return dB
	})
	return dA, dB
}

// eachPart concatenates the rows that of returns for each part, given the first of its rows in the
// weight and in A.
func eachPart(a lora.Adapter, of func(p lora.Part, row, rank int) program.Value) program.Value {
	var list []program.Value
	row, rank := 0, 0
	for _, p := range a.Parts {
		list = append(list, of(p, row, rank))
		row, rank = row+len(p.Rows), rank+p.Rank
	}
	if len(list) == 1 {
		return list[0]
	}
	return list[0].Concatenate(0, list[1:]...)
}

func scaledDot(p lora.Part, x program.Value, xAxis int, y program.Value, yAxis int) program.Value {
	return x.Dot(y, [2][]int{{xAxis}, {yAxis}}, [2][]int{}).Scale(p.Scale)
}

// block returns rows of x from the first on, and the first columns of them.
func block(x program.Value, first, rows, columns int) program.Value {
	return x.At(0, first, first+rows).At(1, 0, columns)
}

// MergeAdapter returns a weight with its adapter.
func MergeAdapter(dev *engine.Device, a lora.Adapter, w, A, B []float32) ([]float32, error) {
	const merged = "merged"
	tensors := []lora.Factor{{Name: "w", Dims: []int{a.B().Dims[0], a.In}}, a.A(), a.B()}
	t := stage.Tensors{}
	defer func() { t.Finalize() }()
	s := stage.Stage{Name: "merged adapter",
		Write: func(_ *program.Builder, in stage.Values) stage.Values {
			return stage.Values{merged: merge(a, in["w"], in[a.A().Name], in[a.B().Name])}
		}}
	for i, data := range [][]float32{w, A, B} {
		of := tensors[i]
		s.Inputs = append(s.Inputs, engine.Spec{Name: of.Name, Shape: floatShape(of.Dims...)})
		var err error
		if t[of.Name], err = engine.Upload(dev, data, of.Dims...); err != nil {
			return nil, err
		}
	}
	e, err := s.Compile(dev, nil)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if err := e.Run(t); err != nil {
		return nil, err
	}
	return engine.Download[float32](t[merged])
}
