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
	"github.com/cage-qat/cage/host/compute/lower"
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

// planKey is the key of the warning about models that are no plan.
type planKey struct{}

// Planned implements [Language].
func (m *transformer) Planned(params []*graph.Node, batch *graph.Node, wrt []*graph.Node,
	q PlannedQuantizers) (loss *graph.Node, gradients []*graph.Node, ok bool) {
	inputs := m.plannedInputs(params, batch, q)
	var names []string      // of the inputs that wrt are
	for _, x := range wrt { // a shared operand is several inputs
		before := len(names)
		for _, name := range slices.Sorted(maps.Keys(inputs)) {
			if inputs[name] == x {
				names = append(names, name)
			}
		}
		if len(names) == before {
			return nil, nil, false
		}
	}
	out, ok := m.run(inputs, params, fmt.Sprint("gradient", names, q.Calls.Key()),
		func(shape network.Shape, o plan.Options) (*program.Program, error) {
			return m.lossProgram(shape, names, q.Calls, o)
		})
	if !ok {
		return nil, nil, false
	}
	for _, x := range wrt {
		var sum *graph.Node
		for i, name := range names {
			switch dx := out[1+i]; {
			case inputs[name] != x:
			case sum == nil:
				sum = dx
			default:
				sum = graph.Add(sum, dx)
			}
		}
		gradients = append(gradients, sum)
	}
	return out[0], gradients, true
}

// Evaluated implements [Language].
func (m *transformer) Evaluated(params []*graph.Node, batch *graph.Node, q PlannedQuantizers,
	logits bool) (result *graph.Node, ok bool) {
	out, ok := m.run(m.plannedInputs(params, batch, q), params,
		fmt.Sprint("logits ", logits, q.Calls.Key()),
		func(shape network.Shape, o plan.Options) (*program.Program, error) {
			shape.Head.Logits = logits
			p, err := network.New(m.Settings, shape, q.Calls)
			if err != nil {
				return nil, err
			}
			return forKernels(p, o, "")
		})
	if !ok {
		return nil, false
	}
	return out[0], true
}

func (m *transformer) plannedInputs(params []*graph.Node, batch *graph.Node,
	q PlannedQuantizers) map[string]*graph.Node {
	inputs := map[string]*graph.Node{network.Tokens: batch}
	maps.Copy(inputs, q.Operands)
	for i, p := range m.params {
		inputs[p.Name] = params[i]
	}
	return inputs
}

// run executes a program by a plan, which is kept by a key, and returns its outputs. ok is false if
// the graph must compute them.
func (m *transformer) run(inputs map[string]*graph.Node, params []*graph.Node, key string,
	write func(network.Shape, plan.Options) (*program.Program, error)) (out []*graph.Node, ok bool) {
	batch := inputs[network.Tokens]
	g, dims := batch.Graph(), batch.Shape().Dimensions
	special := func(w *graph.Node) bool {
		_, codes := lower.CodesOf(w)
		return codes || quantizesBackward(w)
	}
	dev := engine.DeviceOf(g)
	if !dev.Fuses() || !engine.OwnProducts(g) || dev.Attention() == device.PlainAttention ||
		slices.ContainsFunc(params, special) {
		return nil, false
	}
	shape := network.Shape{Batch: dims[0], Context: dims[len(dims)-1] - 1, Documents: m.Documents}
	o := plan.Options{Arithmetic: engine.Arithmetic(g), Kernels: kernels.For(m.LossTokens),
		Idle: m.idle}
	key = fmt.Sprint(key, shape, o.Arithmetic, m.Options)
	made, ok := m.plans.Load(key)
	if !ok {
		p, err := write(shape, o)
		if err == nil {
			made, err = plan.Compile(p, o)
		}
		if err != nil { // as where the scores of attention have more elements than a program may
			dev.Once(planKey{}, func() any {
				dev.Warn("the model is computed as a graph, which takes more memory", "reason", err)
				return nil
			})
			return nil, false
		}
		m.plans.Store(key, made)
	}
	compiled := made.(*plan.Plan)
	native := engine.Native{Name: m.Kind, Outputs: lists.Map(compiled.Outputs(),
		func(t program.Type) shapes.Shape { return shapes.Make(dtypes.Float32, t.Shape...) })}
	flat := func(t engine.Tensor) any { return t.Flat }
	native.Run = func(in, out []engine.Tensor, parallel engine.Parallel) error {
		return compiled.Run(lists.Map(in, flat), lists.Map(out, flat), parallel)
	}
	return native.Call(lists.Map(compiled.Inputs(), func(name string) *graph.Node {
		return inputs[name]
	})...), true
}

// lossProgram returns the program of the model's mean loss, or mean divergence and cross-entropy,
// and of the gradients of the loss with respect to the named parameters, for a plan.
func (m *transformer) lossProgram(shape network.Shape, wrt []string, q network.Quantizers,
	o plan.Options) (*program.Program, error) {
	forward, err := network.New(m.Settings, shape, q)
	if err != nil {
		return nil, err
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
	for _, o := range forward.Outputs {
		if shape.Head.Teacher == nil || o.Name != network.Losses {
			b.Output(o.Name, out[o.Name].ReduceSum(0, 1).Scale(factor))
		}
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
