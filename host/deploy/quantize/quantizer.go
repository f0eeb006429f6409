package quantize

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// quantizer runs the programs of a quantizer on one weight.
type quantizer struct {
	dev     *engine.Device
	program spec.Quantizer
	dims    []int
	// block is the block size of the rotation at the end of the program, 1 if there is none. The
	// quantizer rounds before this rotation.
	block   int
	own     []*engine.Buffer // the quantizer's trained parameters and state for the weight
	quant   *engine.Executable
	scaling *engine.Executable // computes only scales; nil until needed
}

// Outputs of the executable quant, in this order. Codes and scale exist only if the program has
// them.
const (
	valueOutput   = iota // Q(w)
	roundedOutput        // Q(w) before the rotation
	codesOutput
	scaleOutput
)

// newQuantizer prepares the quantizer of a weight. own reads its trained parameters and state, by
// the names of the program's inputs; nil: they get their initial values, which may depend on the
// statistics.
func newQuantizer(dev *engine.Device, p spec.Quantizer, w []float32, own func(input string) ([]float32, error), st statistics) (*quantizer, error) {
	p = p.ForEvaluation()
	q := &quantizer{dev: dev, program: p, dims: p.Program.Inputs[0].Type.Shape, block: max(1, passes.EndingRotation(p.Program, spec.OutputValue))}
	var err error
	if own != nil {
		err = q.upload(own)
	} else if p.SearchEvery > 0 {
		err = errors.New("the quantizer searches in its own process, which only trainings do: train with it")
	} else {
		err = q.init(w, st)
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
	_ = engine.FinalizeAll(q.own...)
	for _, e := range []*engine.Executable{q.quant, q.scaling} {
		if e != nil {
			e.Close()
		}
	}
}

func (q *quantizer) upload(read func(input string) ([]float32, error)) error {
	for _, in := range q.program.Program.Inputs[1:] {
		values, err := read(in.Name)
		if err != nil {
			return err
		}
		b, err := engine.Upload(q.dev, values, in.Type.Shape...)
		if err != nil {
			return fmt.Errorf("%s: %w", in.Name, err)
		}
		q.own = append(q.own, b)
	}
	return nil
}

// init computes the initial values of the trained parameters and of the state.
func (q *quantizer) init(w []float32, st statistics) error {
	inputs := q.program.Program.Inputs[1:]
	if len(inputs) == 0 {
		return nil
	}
	specs, asked := q.specs()[:1], []program.Input(nil)
	for _, p := range []*program.Program{q.program.Init, q.program.InitState} {
		if p == nil {
			continue
		}
		for _, in := range p.Inputs[1:] {
			if !slices.ContainsFunc(asked, func(a program.Input) bool { return a.Name == in.Name }) {
				specs, asked = append(specs, float32Input(in.Name, false, in.Type.Shape...)), append(asked, in)
			}
		}
	}
	columns, err := st.upload(q.dev, asked)
	defer func() { _ = engine.FinalizeAll(columns...) }()
	if err != nil {
		return err
	}
	e, err := q.dev.Compile("initial quantizer parameters", specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		named := map[string]*graph.Node{}
		for _, p := range []*program.Program{q.program.Init, q.program.InitState} {
			if p == nil {
				continue
			}
			args := in[:1:1]
			for _, input := range p.Inputs[1:] {
				args = append(args, in[1+slices.IndexFunc(asked, func(a program.Input) bool { return a.Name == input.Name })])
			}
			maps.Copy(named, lower.Lower(g, p, args))
		}
		var out []*graph.Node
		for _, input := range inputs {
			out = append(out, named[input.Name])
		}
		return out
	})
	if err != nil {
		return err
	}
	defer e.Close()
	q.own, err = q.run(e, w, columns)
	return err
}

func (q *quantizer) specs() []engine.Spec {
	var specs []engine.Spec
	for _, in := range q.program.Program.Inputs {
		specs = append(specs, engine.Spec{Name: in.Name, Shape: shapes.Make(dtypes.Float32, in.Type.Shape...)})
	}
	return specs
}

func (q *quantizer) compile() error {
	rounded, err := q.withoutRotation(q.program.Program)
	if err != nil {
		return err
	}
	q.quant, err = q.dev.Compile("quantize "+q.program.Program.Name, q.specs(), func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		named := lower.Lower(g, lower.Only(q.program.Program, spec.OutputValue, spec.OutputCodes, spec.OutputScale), in)
		before := lower.Lower(g, lower.Only(rounded, spec.OutputValue), in)
		out := []*graph.Node{named[spec.OutputValue], before[spec.OutputValue]}
		if q.hasCodes() {
			out = append(out, graph.ConvertDType(named[spec.OutputCodes], dtypes.Int32), named[spec.OutputScale])
		}
		return out
	})
	return err
}

func (q *quantizer) withoutRotation(p *program.Program) (*program.Program, error) {
	if q.block == 1 {
		return p, nil
	}
	return passes.UndoRotation(p, q.block, spec.OutputValue)
}

func (q *quantizer) hasCodes() bool {
	_, codes := q.program.Program.Output(spec.OutputCodes)
	_, scale := q.program.Program.Output(spec.OutputScale)
	return codes && scale
}

func (q *quantizer) scaleShape() []int {
	id, _ := q.program.Program.Output(spec.OutputScale)
	return q.program.Program.TypeOf(id).Shape
}

func (q *quantizer) run(e *engine.Executable, w []float32, more []*engine.Buffer) ([]*engine.Buffer, error) {
	x, err := engine.Upload(q.dev, w, q.dims...)
	if err != nil {
		return nil, err
	}
	defer x.Finalize()
	return e.Run(append([]*engine.Buffer{x}, more...), nil)
}

func (q *quantizer) scales(w []float32) (scale []float32, err error) {
	if q.scaling == nil {
		q.scaling, err = q.dev.Compile("scales of "+q.program.Program.Name, q.specs(), func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{lower.Lower(g, lower.Only(q.program.Program, spec.OutputScale), in)[spec.OutputScale]}
		})
		if err != nil {
			return nil, err
		}
	}
	out, err := q.run(q.scaling, w, q.own)
	if err != nil {
		return nil, err
	}
	defer out[0].Finalize()
	return engine.Download[float32](out[0])
}

// quantize returns Q(w), and the program's answer in the domain in which it rounds.
func (q *quantizer) quantize(w []float32) (value []float32, a posttrain.Answer, err error) {
	out, err := q.run(q.quant, w, q.own)
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
func (q *quantizer) grid(a posttrain.Answer, largest float64) (*posttrain.Grid, error) {
	switch {
	case len(q.dims) != 2:
		return nil, fmt.Errorf("its shape %v is no matrix", q.dims)
	case !q.hasCodes() || q.program.Unpack == nil:
		return nil, fmt.Errorf("the quantizer cannot say what numbers its codes stand for (it does not implement Packer)")
	}
	probe := cage.ProbeMatrix(q.dims[0], q.dims[1], largest)
	_ = linalg.Rotate(probe, q.dims[1], q.block) // cannot fail: the program rotates the same blocks
	_, other, err := q.quantize(toFloat32(probe))
	if err != nil {
		return nil, err
	}
	codes, err := cage.Alphabet(a.Codes, other.Codes)
	if err != nil {
		return nil, err
	}
	numbers, err := q.numbers(codes)
	if err != nil {
		return nil, err
	}
	return posttrain.NewGrid(a, numbers, q.dims[0], q.dims[1])
}

// numbers returns the numbers that codes represent, in units of the scale.
func (q *quantizer) numbers(codes []int32) (map[int32]float32, error) {
	size := q.dims[0] * q.dims[1]
	ones := slices.Repeat([]float32{1}, int(program.FloatType(q.scaleShape()...).Size()))
	unrotated, err := q.withoutRotation(q.program.Unpack)
	if err != nil {
		return nil, err
	}
	out := map[int32]float32{}
	for part := range slices.Chunk(codes, size) {
		values, err := q.unpack(unrotated, append(slices.Clone(part), slices.Repeat(part[:1], size-len(part))...), ones)
		if err != nil {
			return nil, err
		}
		for i, c := range part {
			out[c] = values[i]
		}
	}
	return out, nil
}

// unpack computes the weight that codes and scales represent, by a program.
func (q *quantizer) unpack(p *program.Program, codes []int32, scale []float32) ([]float32, error) {
	shape := q.scaleShape()
	specs := []engine.Spec{{Name: spec.OutputCodes, Shape: shapes.Make(dtypes.Int32, q.dims...)}, {Name: spec.OutputScale, Shape: shapes.Make(dtypes.Float32, shape...)}}
	e, err := q.dev.Compile("unpack "+p.Name, specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		for i, input := range p.Inputs {
			if input.Name == spec.OutputCodes {
				to := map[program.DType]dtypes.DType{program.Float: dtypes.Float32, program.Uint: dtypes.Uint32, program.Int: dtypes.Int32}
				in[i] = graph.ConvertDType(in[i], to[input.Type.DType])
			}
		}
		return []*graph.Node{lower.Lower(g, p, in)[spec.OutputValue]}
	})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	c, err := engine.Upload(q.dev, codes, q.dims...)
	if err != nil {
		return nil, err
	}
	defer c.Finalize()
	s, err := engine.Upload(q.dev, scale, shape...)
	if err != nil {
		return nil, err
	}
	defer s.Finalize()
	out, err := e.Run([]*engine.Buffer{c, s}, nil)
	if err != nil {
		return nil, err
	}
	defer out[0].Finalize()
	return engine.Download[float32](out[0])
}
