package step

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/sdk"
)

// CodeReader reads the codes and residuals of chosen elements of quantized weights. It
// quantizes the weights anew and brings nothing but those elements to the host.
//
// The codes are the integers that the quantizer's program returns, which belong to
// the domain it quantizes in: with a rotation, code i is that of the rotated weight's
// element i. A quantizer that returns no codes is followed by the bits of the value
// Q(x): two elements of it have one code exactly when their values are equal, so
// that a code changes also when only the scale does. Residuals are x − Q(x) of the
// weight's own elements, which is what the correction is made of; with a rotation,
// residual i and code i belong to the same block and not to the same number.
type CodeReader struct {
	k      *Kernels
	exec   *engine.Executable
	params []int // positions of the weights among the parameters
}

// WeightElements are the positions of chosen elements in a weight's flat tensor.
type WeightElements struct {
	Weight    string
	Positions []int32
}

// CodeReader compiles the reading of the chosen elements, at least one of each weight,
// which must be quantized.
func (k *Kernels) CodeReader(chosen []WeightElements) (*CodeReader, error) {
	r := &CodeReader{k: k}
	at := k.plan.quantized()
	for _, c := range chosen {
		i := slices.IndexFunc(at, func(i int) bool { return k.plan.Rules[i].Name == c.Weight })
		if i < 0 {
			return nil, fmt.Errorf("step: codes of %s: it is no quantized weight", c.Weight)
		}
		n := size(k.plan.Rules[at[i]].Shape)
		if len(c.Positions) == 0 || slices.Min(c.Positions) < 0 || int(slices.Max(c.Positions)) >= n {
			return nil, fmt.Errorf("step: codes of %s: want at least one position, all from 0 to %d", c.Weight, n-1)
		}
		r.params = append(r.params, at[i])
	}
	specs, build := k.plan.codesGraph(r.params, chosen)
	var err error
	r.exec, err = k.dev.Compile("codes", specs, build)
	return r, err
}

// Close frees the executable.
func (r *CodeReader) Close() { r.exec.Close() }

// Read returns the code and the residual of every chosen element, weight after weight.
func (r *CodeReader) Read(s *State) (codes []int32, residuals []float32, err error) {
	var in []*engine.Buffer
	for _, i := range r.params {
		in = append(in, s.Params[i])
		rule := r.k.plan.Rules[i]
		for _, t := range rule.Quantizer.Trained {
			in = append(in, s.Params[r.k.trainedIndex(rule.Name, sdk.TrainedPrefix+t.Name)])
		}
	}
	out, err := r.exec.Run(in, nil)
	if err != nil {
		return nil, nil, err
	}
	defer engine.FinalizeAll(out...)
	if codes, err = engine.Download[int32](out[0]); err != nil {
		return nil, nil, err
	}
	residuals, err = engine.Download[float32](out[1])
	return codes, residuals, err
}

// codesGraph maps weights, each followed by its quantizer's trained parameters, to the
// codes and the residuals of the chosen elements.
func (p *Plan) codesGraph(params []int, chosen []WeightElements) ([]engine.Spec, engine.BuildFunc) {
	var specs []engine.Spec
	for _, i := range params {
		rule := p.Rules[i]
		specs = append(specs, engine.Spec{Name: rule.Name, Shape: floats(rule.Shape...)})
		for _, t := range rule.Quantizer.Trained {
			specs = append(specs, engine.Spec{Name: TrainedName(rule.Name, t.Name), Shape: floats(t.Shape...)})
		}
	}
	return specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		var codes, residuals []*graph.Node
		for j, i := range params {
			q := p.Rules[i].Quantizer
			n := 1 + len(q.Trained)
			code, value := codesOf(*q, in[:n])
			at := engine.Constant(g, chosen[j].Positions, len(chosen[j].Positions), 1)
			codes = append(codes, elements(code, at))
			residuals = append(residuals, graph.Sub(elements(in[0], at), elements(value, at)))
			in = in[n:]
		}
		return []*graph.Node{graph.Concatenate(codes, 0), graph.Concatenate(residuals, 0)}
	}
}

// codesOf returns the codes and values of a weight.
func codesOf(q sdk.QuantizerProgram, in []*graph.Node) (codes, value *graph.Node) {
	p := *q.Program
	p.Outputs = nil // what no output needs is not computed
	for _, o := range q.Program.Outputs {
		if o.Name == sdk.OutputValue || o.Name == sdk.OutputCodes {
			p.Outputs = append(p.Outputs, o)
		}
	}
	out := lower.Lower(in[0].Graph(), &p, in)
	value = out[sdk.OutputValue]
	if codes = out[sdk.OutputCodes]; codes == nil {
		zero := graph.ScalarZero(value.Graph(), value.DType())
		value := graph.Where(graph.Equal(value, zero), zero, value) // −0 is 0
		return graph.Bitcast(value, dtypes.Int32), out[sdk.OutputValue]
	}
	return graph.ConvertDType(codes, dtypes.Int32), value
}

// elements gathers elements of x by their flat positions, [n, 1].
func elements(x, at *graph.Node) *graph.Node {
	return graph.Gather(graph.Reshape(x, x.Shape().Size()), at)
}
