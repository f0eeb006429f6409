package model

import (
	"testing"

	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// pass is a program of a model, and its inputs by name.
type pass struct {
	ProgramOptions
	inputs map[string]program.Value
}

// passOf returns the pass that reads a batch, with quantizers by site.
func passOf(m Model, params []program.Value, batch program.Value,
	calls ...map[string]*program.Call) pass {
	dims := batch.Shape()
	of := pass{inputs: map[string]program.Value{network.Tokens: batch}}
	of.Batch, of.Context, of.Documents = dims[0], dims[len(dims)-1]-1, len(dims) > 2
	for i, p := range m.Params() {
		of.inputs[p.Name] = params[i]
	}
	for _, c := range calls {
		of.Calls = c
	}
	return of
}

// compute adds the program to that of the inputs, with the gradients with respect to inputs, and
// returns its outputs by name.
func (of pass) compute(m Model, wrt ...string) map[string]program.Value {
	var b *program.Builder
	for _, x := range of.inputs {
		b = x.Builder()
	}
	written, err := m.Program(of.ProgramOptions, wrt...)
	if err != nil {
		b.Fail(err)
		return nil
	}
	return transform.Inline(b, written, lists.Map(written.Inputs,
		func(in program.Input) program.Value { return of.inputs[in.Name] })...)
}

func lossesIn(m Model, params []program.Value, batch program.Value,
	calls ...map[string]*program.Call) program.Value {
	return passOf(m, params, batch, calls...).compute(m)[network.Losses]
}

// lossAndGradients returns the mean loss, and its gradients with respect to the parameters.
func lossAndGradients(m Model, params []program.Value, batch program.Value,
	calls ...map[string]*program.Call) (loss program.Value, gradients []program.Value) {
	return passOf(m, params, batch, calls...).gradients(m)
}

func (of pass) gradients(m Model) (loss program.Value, gradients []program.Value) {
	names := lists.Map(m.Params(), func(p architecture.Param) string { return p.Name })
	out := of.compute(m, names...)
	return out[network.Losses], lists.Map(names, func(name string) program.Value {
		return out[autodiff.Prefix+name]
	})
}

// lossesAndGradients returns the losses and, after them, the gradients of their mean.
func lossesAndGradients(m Model, params []program.Value, batch program.Value,
	calls ...map[string]*program.Call) []program.Value {
	_, gradients := lossAndGradients(m, params, batch, calls...)
	return append([]program.Value{lossesIn(m, params, batch, calls...)}, gradients...)
}

// logitsIn returns the logits of a batch, [batch·context, vocabulary].
func logitsIn(m Model, params []program.Value, batch program.Value,
	calls ...map[string]*program.Call) program.Value {
	of := passOf(m, params, batch, calls...)
	of.Head.Logits = true
	return of.compute(m)[network.Logits]
}

func mean(x program.Value) program.Value { return x.MeanAll() }

// callOf returns a quantizer of a matrix that write writes.
func callOf(t testing.TB, rows, columns int,
	write func(x program.Value) program.Value) *program.Call {
	t.Helper()
	b := program.NewBuilder("test")
	b.Output("value", write(b.Input("x", program.FloatType(rows, columns))))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return &program.Call{Name: "test", Meaning: p}
}

// atSites returns a quantizer for each activation site for which write is not nil.
func atSites(t testing.TB, m Model, batch, context int,
	of func(s ActivationSite) func(x program.Value) program.Value) map[string]*program.Call {
	t.Helper()
	calls := map[string]*program.Call{}
	for _, s := range m.ActivationSites(batch, context) {
		if write := of(s); write != nil {
			calls[s.Name] = callOf(t, s.Tokens, s.Width, write)
		}
	}
	return calls
}

// fakeQuantizers returns quantizers of all activations and quantized weights.
func fakeQuantizers(t testing.TB, m Model, batch, context int) map[string]*program.Call {
	t.Helper()
	calls := atSites(t, m, batch, context,
		func(ActivationSite) func(x program.Value) program.Value { return fakeQuantize })
	for _, p := range m.Params() {
		if p.Quantized {
			calls[p.Name] = callOf(t, p.Dims[0], p.Dims[1], fakeQuantize)
		}
	}
	return calls
}

// fakeQuantize quantizes x with 4-bit QuEST (Panferov et al., 2025) in blocks of up to 128 rotated
// coordinates.
func fakeQuantize(x program.Value) program.Value {
	const clip, lowest, highest = 2.370255550006294, -8, 7
	width := x.Shape()[1]
	block := min(width&-width, 128)
	z := x.Hadamard(block)
	scale := z.Square().MeanRow().Sqrt().Scale(clip / highest).StopGradient()
	r := z.Div(scale)
	inside := r.Clip(lowest-0.5, highest+0.5).Eq(r)
	code := r.Round().Clip(lowest, highest)
	// The gradient is that of z where it is not clipped.
	passed := inside.Select(z, x.Builder().Const(0))
	y := code.Mul(scale).StopGradient().Add(passed.Sub(passed.StopGradient()))
	return y.Hadamard(block)
}

// planOf returns a program and its plan.
func planOf(m *transformer, of ProgramOptions, arithmetic matmul.Arithmetic,
) (p *program.Program, compiled *plan.Plan, err error) {
	if p, err = m.Program(of); err != nil {
		return nil, nil, err
	}
	calls := m.Calls(of.Shape)
	compiled, err = plan.Compile(p, plan.Options{Arithmetic: arithmetic, Kernels: calls.Kernels,
		Sums: calls.Sums, Recompute: calls.Recompute})
	return p, compiled, err
}
