package quantize

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

type quantizer struct {
	dev     *engine.Device
	program spec.Quantizer
	dims    []int
	// block is the block size of the rotation that ends the program; 1 if there is none. The
	// quantizer rounds before this rotation.
	block   int
	inputs  stage.Tensors // the quantizer's trained parameters and state for the weight
	quant   *stage.Executable
	scaling *stage.Executable // computes only scales; nil until needed
}

// roundedOutput is Q(w) before the rotation, an output of the executable quant besides those of the
// program.
const roundedOutput = "rounded"

// newQuantizer prepares the quantizer of a weight. inputs returns its trained parameters and state
// by input name; if it is nil, they get their initial values.
func newQuantizer(dev *engine.Device, p spec.Quantizer, w []float32,
	inputs func(input string) ([]float32, error)) (*quantizer, error) {
	p = p.ForEvaluation()
	q := &quantizer{dev: dev, program: p, dims: p.Program.Inputs[0].Type.Shape,
		block:  max(1, passes.EndingRotation(p.Program, spec.OutputValue)),
		inputs: stage.Tensors{}}
	var err error
	switch {
	case inputs != nil:
		for _, in := range p.Program.Inputs[1:] {
			var b *engine.Buffer
			values, failed := inputs(in.Name)
			if err = failed; err == nil {
				b, err = engine.Upload(dev, values, in.Type.Shape...)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", in.Name, err)
				break
			}
			q.inputs[in.Name] = b
		}
	case p.SearchEvery > 0:
		err = errors.New("the quantizer searches in its own process, which only training does: " +
			"train with it")
	case p.Calibrated():
		err = errors.New("the quantizer needs statistics of activations, which only training " +
			"computes: train with it")
	case len(p.Program.Inputs) > 1:
		err = q.init(w)
	}
	if err == nil {
		err = q.compile()
	}
	if err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

func (q *quantizer) close() {
	q.inputs.Finalize()
	for _, e := range []*stage.Executable{q.quant, q.scaling} {
		if e != nil {
			e.Close()
		}
	}
}

// init computes the initial values of the quantizer's trained parameters and state.
func (q *quantizer) init(w []float32) error {
	e, err := q.stage("initial quantizer parameters", 1, func(x []program.Value) stage.Values {
		named := stage.Values{}
		for _, p := range []*program.Program{q.program.Init, q.program.InitState} {
			if p != nil {
				maps.Copy(named, transform.Inline(x[0].Builder(), p, x...))
			}
		}
		out := stage.Values{}
		for _, input := range q.program.Program.Inputs[1:] {
			out[input.Name] = named[input.Name]
		}
		return out
	})
	if err != nil {
		return err
	}
	defer e.Close()
	q.inputs, err = q.run(e, w)
	return err
}

// given returns the trained parameters and states of the quantizer of a weight, but not those that
// it shares with other sites.
func (q *quantizer) given(weight string) (list []step.Tensor, err error) {
	shared := func(t spec.Tensor) bool { return t.Shared != "" }
	if slices.ContainsFunc(q.program.Trained, shared) {
		return nil, nil
	}
	for _, in := range q.program.Program.Inputs[1:] {
		name := step.QuantizerInput(weight, q.program.Trained, in.Name)
		t := step.Tensor{Name: name, Dims: in.Type.Shape}
		if t.Data, err = engine.Download[float32](q.inputs[in.Name]); err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// stage compiles a function of the first inputs of the quantizer's program, the weight and so on.
func (q *quantizer) stage(name string, inputs int,
	write func(in []program.Value) stage.Values) (*stage.Executable, error) {
	list := q.program.Program.Inputs[:inputs]
	s := stage.Stage{Name: name, Write: func(_ *program.Builder, in stage.Values) stage.Values {
		return write(lists.Map(list, func(i program.Input) program.Value { return in[i.Name] }))
	}}
	for _, in := range list {
		s.Inputs = append(s.Inputs, float32Input(in.Name, false, in.Type.Shape...))
	}
	return s.Compile(q.dev, nil)
}

func (q *quantizer) compile() error {
	p := q.program.Program
	rounded, err := p, error(nil) // the program without its rotation
	if q.block > 1 {
		if rounded, err = passes.UndoRotation(p, q.block, spec.OutputValue); err != nil {
			return err
		}
	}
	q.quant, err = q.stage("quantize "+p.Name, len(p.Inputs), func(in []program.Value) stage.Values {
		b := in[0].Builder()
		only := fakequant.Only(p, spec.OutputValue, spec.OutputCodes, spec.OutputScale)
		out := stage.Values(transform.Inline(b, only, in...))
		before := transform.Inline(b, fakequant.Only(rounded, spec.OutputValue), in...)
		out[roundedOutput] = before[spec.OutputValue]
		if q.hasCodes() {
			out[spec.OutputCodes] = out[spec.OutputCodes].Convert(program.Int)
		}
		return out
	})
	return err
}

func (q *quantizer) hasCodes() bool {
	_, codes := q.program.Program.Output(spec.OutputCodes)
	_, scale := q.program.Program.Output(spec.OutputScale)
	return codes && scale
}

// run runs an executable on a weight.
func (q *quantizer) run(e *stage.Executable, w []float32) (stage.Tensors, error) {
	x, err := engine.Upload(q.dev, w, q.dims...)
	if err != nil {
		return nil, err
	}
	defer x.Finalize()
	out := stage.Tensors{}
	return out, e.Run(out, q.inputs, stage.Tensors{q.program.Program.Inputs[0].Name: x})
}

func (q *quantizer) scales(w []float32) (scale []float32, err error) {
	if q.scaling == nil {
		only := fakequant.Only(q.program.Program, spec.OutputScale)
		q.scaling, err = q.stage("scales of "+only.Name, len(only.Inputs),
			func(in []program.Value) stage.Values {
				return transform.Inline(in[0].Builder(), only, in...)
			})
		if err != nil {
			return nil, err
		}
	}
	out, err := q.run(q.scaling, w)
	if err != nil {
		return nil, err
	}
	defer out.Finalize()
	return engine.Download[float32](out[spec.OutputScale])
}

// quantize returns Q(w), and the program's outputs before the rotation that may end it.
func (q *quantizer) quantize(w []float32) (value []float32, a posttrain.Answer, err error) {
	out, err := q.run(q.quant, w)
	if err != nil {
		return nil, a, err
	}
	defer out.Finalize()
	if value, err = engine.Download[float32](out[spec.OutputValue]); err != nil {
		return nil, a, err
	}
	if a.Value, err = engine.Download[float32](out[roundedOutput]); err != nil || !q.hasCodes() {
		return value, a, err
	}
	if a.Codes, err = engine.Download[int32](out[spec.OutputCodes]); err != nil {
		return nil, a, err
	}
	a.Scale, err = engine.Download[float32](out[spec.OutputScale])
	return value, a, err
}

// grid returns the grid of a weight, given the codes and scales that the quantizer computed for it.
func (q *quantizer) grid(a posttrain.Answer) (*posttrain.Grid, error) {
	switch {
	case len(q.dims) != 2:
		return nil, fmt.Errorf("got shape %v, want a matrix", q.dims)
	case !q.hasCodes():
		return nil, errors.New("the quantizer returns no codes and scales")
	case q.program.Grid == (spec.Grid{}):
		return nil, errors.New("the quantizer does not declare which numbers its codes represent (Grid)")
	}
	return posttrain.NewGrid(a, q.program.Grid, q.dims[0], q.dims[1])
}
