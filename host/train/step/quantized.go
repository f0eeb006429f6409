package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/internal/lists"
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
	w, err := c.quantizedWeight(weight)
	if err != nil {
		return nil, err
	}
	// Weights share an executable if their programs differ in name only, and inputs have the same
	// shapes on the device. Its inputs have the names of the first weight's.
	unnamed := *w.program
	unnamed.Name = ""
	key := "quantized " + unnamed.Hash()
	for _, in := range c.plan.dividedTensors().Specs(c.dev, w.inputs) {
		key += fmt.Sprint(" ", in.Shape, in.Sharded)
	}
	exec, err := c.compileOnce(key, func() stage.Stage {
		return stage.Stage{Name: "quantized " + weight, Inputs: w.inputs,
			Write: func(_ *program.Builder, in stage.Values) stage.Values {
				return w.evaluate(in, spec.OutputValue, spec.OutputCodes, spec.OutputScale)
			}}
	})
	if err != nil {
		return nil, err
	}
	inputs := stage.Tensors{}
	for i, in := range exec.Inputs {
		inputs[in.Name] = s.Tensors[w.inputs[i].Name]
	}
	t := stage.Tensors{}
	defer t.Finalize()
	if err := exec.Run(t, inputs); err != nil {
		return nil, err
	}
	out := &Quantized{Rotation: passes.EndingRotation(w.program, spec.OutputValue)}
	if out.Value, err = engine.Download[float32](t[spec.OutputValue]); err != nil {
		return nil, err
	}
	if b := t[spec.OutputCodes]; b != nil {
		if out.Codes, err = engine.Download[int32](b); err != nil {
			return nil, err
		}
	}
	if b := t[spec.OutputScale]; b != nil {
		out.ScaleShape = slices.Clone(b.Shape().Dimensions)
		out.Scale, err = engine.Download[float32](b)
	}
	return out, err
}

type quantizedWeight struct {
	program *program.Program
	inputs  []engine.Spec // the weight, and the trained parameters and state of its quantizer
}

func (c *Compiled) quantizedWeight(name string) (w quantizedWeight, err error) {
	i := slices.IndexFunc(c.plan.Rules, func(r cage.Rule) bool { return r.Name == name })
	if i < 0 || c.plan.Rules[i].Quantizer == nil {
		return w, fmt.Errorf("step: %s is not a quantized weight", name)
	}
	r, q := c.plan.Rules[i], c.plan.Weights[name]
	tensors := append([]Tensor{{Name: name, Dims: r.Shape}}, parametersOf(q, name)...)
	w.program = r.Quantizer.ForEvaluation().Program
	w.inputs = append(inputSpecs(tensors, program.KindParam.Of, false),
		inputSpecs(statesOf(q, name), asNamed, false)...)
	return w, nil
}

// evaluate returns those of the named outputs that the program has, with codes as integers.
func (w quantizedWeight) evaluate(in stage.Values, outputs ...string) stage.Values {
	args := lists.Map(w.inputs, func(spec engine.Spec) program.Value { return in[spec.Name] })
	out := stage.Values(fakequant.ByRows(fakequant.Only(w.program, outputs...), args...))
	if codes, ok := out[spec.OutputCodes]; ok {
		out[spec.OutputCodes] = codes.Convert(program.Int)
	}
	return out
}

// CodeReader reads the codes and residuals of chosen elements of quantized weights. It
// quantizes the weights anew and copies only those elements to the host.
//
// The codes are the integers that the quantizer's evaluation program returns; with a rotation,
// those of the rotated weight. If the quantizer returns no codes, the bits of Q(x) replace them,
// which also change when only the scale does. Residuals are x − Q(x) of the unrotated weight.
type CodeReader struct{ exec *stage.Executable }

// WeightElements selects elements of a weight by their flat indices.
type WeightElements struct {
	Weight    string
	Positions []int32
}

// CodeReader compiles a reader of the chosen elements. Each entry must name a quantized weight and
// choose at least one of its elements.
func (c *Compiled) CodeReader(chosen []WeightElements) (*CodeReader, error) {
	weights := make([]quantizedWeight, len(chosen))
	var inputs []engine.Spec
	for i, e := range chosen {
		var err error
		if weights[i], err = c.quantizedWeight(e.Weight); err != nil {
			return nil, err
		}
		inputs = append(inputs, weights[i].inputs...)
		n := weights[i].inputs[0].Shape.Size()
		if len(e.Positions) == 0 || slices.Min(e.Positions) < 0 || int(slices.Max(e.Positions)) >= n {
			return nil, fmt.Errorf("step: codes of %s: want at least one position, all from 0 to %d",
				e.Weight, n-1)
		}
	}
	write := func(b *program.Builder, in stage.Values) stage.Values {
		var codes, residuals []program.Value
		for i, w := range weights {
			out := w.evaluate(in, spec.OutputValue, spec.OutputCodes)
			positions := lists.Map(chosen[i].Positions, func(at int32) int64 { return int64(at) })
			n := len(positions)
			at := b.Apply(program.OpConstant, program.Attr{Ints: positions},
				program.Type{DType: program.Int, Shape: []int{n}})
			elements := func(x program.Value) program.Value {
				return at.Lookup(x.Reshape(int(x.Type().Size()), 1)).Reshape(n)
			}
			value := elements(out[spec.OutputValue])
			code, ok := out[spec.OutputCodes]
			if ok { // small integers
				code = elements(code.Convert(program.Float)).Convert(program.Int)
			} else {
				zero := b.Const(0)
				code = value.Eq(zero).Select(zero, value).Bitcast(program.Int) // −0 becomes 0
			}
			codes = append(codes, code)
			x := in[program.KindParam.Of(chosen[i].Weight)]
			residuals = append(residuals, elements(x).Sub(value))
		}
		return stage.Values{codesName: codes[0].Concatenate(0, codes[1:]...),
			residualsName: residuals[0].Concatenate(0, residuals[1:]...)}
	}
	e, err := c.compile(stage.Stage{Name: "codes", Inputs: inputs, Write: write})
	return &CodeReader{e}, err
}

// Names of the outputs of a [CodeReader].
const (
	codesName     = "codes"
	residualsName = "residuals"
)

// Close frees the executable.
func (r *CodeReader) Close() { r.exec.Close() }

// Read returns the code and the residual of every chosen element, ordered by weight.
func (r *CodeReader) Read(s *State) (codes []int32, residuals []float32, err error) {
	t := stage.Tensors{}
	if err := r.exec.Run(t, s.Tensors); err != nil {
		return nil, nil, err
	}
	defer engine.FinalizeAll(t[codesName], t[residualsName])
	if codes, err = engine.Download[int32](t[codesName]); err != nil {
		return nil, nil, err
	}
	residuals, err = engine.Download[float32](t[residualsName])
	return codes, residuals, err
}
