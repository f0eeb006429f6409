package model

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/kernels"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Planned implements [Language].
func (m *transformer) Planned(of Planned, wrt []*graph.Node) (outputs map[string]*graph.Node,
	gradients []*graph.Node, ok bool) {
	var names []string      // of the inputs that wrt are
	for _, x := range wrt { // a shared operand is several inputs
		before := len(names)
		for _, name := range slices.Sorted(maps.Keys(of.Inputs)) {
			if of.Inputs[name] == x {
				names = append(names, name)
			}
		}
		if len(names) == before {
			return nil, nil, false
		}
	}
	out, ok := m.run(of, names)
	for _, x := range wrt {
		var sum *graph.Node
		for _, name := range names {
			switch dx := out[autodiff.Prefix+name]; {
			case !ok || of.Inputs[name] != x:
			case sum == nil:
				sum = dx
			default:
				sum = graph.Add(sum, dx)
			}
		}
		gradients = append(gradients, sum)
	}
	return out, gradients, ok
}

// run executes a program by a plan, which is kept for the next graph, and returns its outputs by
// name. ok is false if the graph must compute them.
func (m *transformer) run(of Planned, wrt []string) (outputs map[string]*graph.Node, ok bool) {
	var g *graph.Graph
	for _, x := range of.Inputs {
		if x != nil {
			g = x.Graph()
		}
	}
	dev := engine.DeviceOf(g)
	if !dev.Fuses() {
		return nil, false
	}
	of.plain = dev.Attention() == device.PlainAttention
	compiled, err := m.Plan(of, engine.Arithmetic(g), wrt)
	if err != nil {
		panic(err)
	}
	native := engine.Native{Name: m.Kind, Outputs: lists.Map(compiled.Outputs(),
		func(t program.Type) shapes.Shape { return shapes.Make(dtypesOf[t.DType], t.Shape...) })}
	flat := func(t engine.Tensor) any { return t.Flat }
	native.Run = func(in, out []engine.Tensor, parallel engine.Parallel) error {
		return compiled.Run(lists.Map(in, flat), lists.Map(out, flat), parallel)
	}
	results := native.Call(lists.Map(compiled.Inputs(), func(name string) *graph.Node {
		return of.Inputs[name]
	})...)
	outputs = map[string]*graph.Node{}
	for i, name := range compiled.OutputNames() {
		outputs[name] = results[i]
	}
	return outputs, true
}

var dtypesOf = map[program.DType]dtypes.DType{program.Float: dtypes.Float32,
	program.Int: dtypes.Int32, program.Uint: dtypes.Uint32, program.Bool: dtypes.Bool}

// Plan implements [Language]. It keeps the plan for the next call.
func (m *transformer) Plan(of Planned, arithmetic matmul.Arithmetic, wrt []string) (*plan.Plan,
	error) {
	o := plan.Options{Arithmetic: arithmetic, Kernels: m.kernels(of.Shape), Idle: m.idle}
	if of.plain {
		delete(o.Kernels, network.Attention)
	}
	key := fmt.Sprint(wrt, of.Key(), of.Shape, o.Arithmetic, of.plain, m.Options)
	if made, ok := m.plans.Load(key); ok {
		return made.(*plan.Plan), nil
	}
	p, err := m.program(of.Shape, wrt, of.Quantizers, o)
	if err != nil {
		return nil, err
	}
	compiled, err := plan.Compile(p, o)
	if err == nil {
		m.plans.Store(key, compiled)
	}
	return compiled, err
}

// kernels returns the kernels of a task.
func (m *transformer) kernels(shape network.Shape) kernels.Table {
	if shape.Task == network.Decode && shape.Context == 1 {
		return kernels.ForFew()
	}
	return kernels.For(m.LossTokens)
}

// program returns the program of a model for a plan: with wrt, of means and of the gradients of the
// mean loss with respect to the named inputs.
func (m *transformer) program(shape network.Shape, wrt []string, q network.Quantizers,
	o plan.Options) (*program.Program, error) {
	forward, err := network.New(m.Settings, shape, q)
	if err != nil {
		return nil, err
	}
	if len(wrt) == 0 {
		return forKernels(forward, o, "")
	}
	vjp, err := autodiff.VJP(forward, network.Losses, wrt...)
	if err != nil {
		return nil, err
	}
	b := program.NewSimplifier(forward.Name)
	in := transform.Inputs(b, forward, nil)[:len(forward.Inputs)]
	out := transform.Inline(b, forward, in...)
	factor := 1 / float64(shape.Batch*shape.Context)
	each := b.Const(factor).Broadcast(out[network.Losses].Shape(), nil)
	gradients := transform.Inline(b, vjp, append(in, each)...)
	means := []string{network.Losses, network.Divergence, network.Entropy}
	for _, o := range forward.Outputs {
		v := out[o.Name]
		if slices.Contains(means, o.Name) {
			v = v.ReduceSum(0, 1).Scale(factor)
		}
		b.Output(o.Name, v)
	}
	for _, name := range wrt {
		b.Output(autodiff.Prefix+name, gradients[autodiff.Prefix+name])
	}
	p, err := b.Build()
	if err != nil {
		return nil, err
	}
	again := map[architecture.Recompute]string{architecture.RecomputeBlocks: network.Block,
		architecture.RecomputeAttention: network.SelfAttention}
	return forKernels(p, o, again[m.Recompute])
}

// forKernels expands the calls that have no kernel ([transform.Expand]), and lets kernels add sums.
func forKernels(p *program.Program, o plan.Options, again string) (*program.Program, error) {
	p, err := transform.Expand(p, o.Computes, again)
	if err != nil {
		return nil, err
	}
	return passes.AddInCalls(p, kernels.Sums...)
}
