package quantize

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

type quantizer struct {
	dev     *engine.Device
	program spec.Quantizer
	dims    []int
	// block is the block size of the rotation that ends the program; 1 if there is none. The
	// quantizer rounds before this rotation.
	block   int
	inputs  []*engine.Buffer // the quantizer's trained parameters and state for the weight
	quant   *engine.Executable
	scaling *engine.Executable // computes only scales; nil until needed
}

// Outputs of the executable quant, in order. The last two exist only if the program has them.
const (
	valueOutput   = iota // Q(w)
	roundedOutput        // Q(w) before the rotation
	codesOutput
	scaleOutput
)

// newQuantizer prepares the quantizer of a weight. inputs returns its trained parameters and state
// by input name; if it is nil, they get their initial values.
func newQuantizer(dev *engine.Device, p spec.Quantizer, w []float32,
	inputs func(input string) ([]float32, error)) (*quantizer, error) {
	p = p.ForEvaluation()
	q := &quantizer{dev: dev, program: p, dims: p.Program.Inputs[0].Type.Shape,
		block: max(1, passes.EndingRotation(p.Program, spec.OutputValue))}
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
			q.inputs = append(q.inputs, b)
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
	_ = engine.FinalizeAll(q.inputs...)
	for _, e := range []*engine.Executable{q.quant, q.scaling} {
		if e != nil {
			e.Close()
		}
	}
}

// init computes the initial values of the quantizer's trained parameters and state.
func (q *quantizer) init(w []float32) error {
	e, err := q.dev.Compile("initial quantizer parameters", q.specs()[:1],
		func(g *graph.Graph, in []*graph.Node) (out []*graph.Node) {
			named := map[string]*graph.Node{}
			for _, p := range []*program.Program{q.program.Init, q.program.InitState} {
				if p != nil {
					maps.Copy(named, lower.Lower(g, p, in))
				}
			}
			for _, input := range q.program.Program.Inputs[1:] {
				out = append(out, named[input.Name])
			}
			return out
		})
	if err != nil {
		return err
	}
	defer e.Close()
	q.inputs, err = q.run(e, w, nil)
	return err
}

// given returns the trained parameters and states of the quantizer of a weight, but not those that
// it shares with other sites.
func (q *quantizer) given(weight string) (list []step.Tensor, err error) {
	shared := func(t spec.Tensor) bool { return t.Shared != "" }
	if slices.ContainsFunc(q.program.Trained, shared) {
		return nil, nil
	}
	for i, in := range q.program.Program.Inputs[1:] {
		name := step.QuantizerInput(weight, q.program.Trained, in.Name)
		t := step.Tensor{Name: name, Dims: in.Type.Shape}
		if t.Data, err = engine.Download[float32](q.inputs[i]); err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

func (q *quantizer) specs() (specs []engine.Spec) {
	for _, in := range q.program.Program.Inputs {
		specs = append(specs, float32Input(in.Name, false, in.Type.Shape...))
	}
	return specs
}

func (q *quantizer) compile() error {
	program := q.program.Program
	rounded, err := program, error(nil) // the program without its rotation
	if q.block > 1 {
		if rounded, err = passes.UndoRotation(program, q.block, spec.OutputValue); err != nil {
			return err
		}
	}
	q.quant, err = q.dev.Compile("quantize "+program.Name, q.specs(),
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			only := lower.Only(program, spec.OutputValue, spec.OutputCodes, spec.OutputScale)
			named := lower.Lower(g, only, in)
			before := lower.Lower(g, lower.Only(rounded, spec.OutputValue), in)
			out := []*graph.Node{named[spec.OutputValue], before[spec.OutputValue]}
			if q.hasCodes() {
				codes := graph.ConvertDType(named[spec.OutputCodes], dtypes.Int32)
				out = append(out, codes, named[spec.OutputScale])
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

func (q *quantizer) run(
	e *engine.Executable, w []float32, more []*engine.Buffer,
) ([]*engine.Buffer, error) {
	x, err := engine.Upload(q.dev, w, q.dims...)
	if err != nil {
		return nil, err
	}
	defer x.Finalize()
	return e.Run(append([]*engine.Buffer{x}, more...), nil)
}

func (q *quantizer) scales(w []float32) (scale []float32, err error) {
	if q.scaling == nil {
		only := lower.Only(q.program.Program, spec.OutputScale)
		q.scaling, err = q.dev.Compile("scales of "+only.Name, q.specs(),
			func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				return []*graph.Node{lower.Lower(g, only, in)[spec.OutputScale]}
			})
		if err != nil {
			return nil, err
		}
	}
	out, err := q.run(q.scaling, w, q.inputs)
	if err != nil {
		return nil, err
	}
	defer out[0].Finalize()
	return engine.Download[float32](out[0])
}

// quantize returns Q(w), and the program's outputs before the rotation that may end it.
func (q *quantizer) quantize(w []float32) (value []float32, a posttrain.Answer, err error) {
	out, err := q.run(q.quant, w, q.inputs)
	if err != nil {
		return nil, a, err
	}
	defer func() { _ = engine.FinalizeAll(out...) }()
	if value, err = engine.Download[float32](out[valueOutput]); err != nil {
		return nil, a, err
	}
	if a.Value, err = engine.Download[float32](out[roundedOutput]); err != nil || !q.hasCodes() {
		return value, a, err
	}
	if a.Codes, err = engine.Download[int32](out[codesOutput]); err != nil {
		return nil, a, err
	}
	a.Scale, err = engine.Download[float32](out[scaleOutput])
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
