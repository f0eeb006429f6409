package model

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/graphs"
	"github.com/cage-qat/cage/host/model/kernels"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// A Pass is a program of a model, as package network writes it, and the nodes of its inputs.
type Pass struct {
	network.Shape
	network.Quantizers
	Inputs map[string]*graph.Node // by name, also those that the program does not have
	plain  bool                   // attention is computed by its meaning
}

// programs are those of a model.
type programs struct {
	write func(Pass) (*program.Program, error)
	Options
	*plans
}

// plans are kept, so that executables that compute the same share one.
type plans struct {
	made sync.Map // of *plan.Plan, by key
	idle plan.Idle
}

// compute implements [Model.Compute]: by a plan on the CPU, and by a graph elsewhere.
func (m programs) compute(of Pass, wrt []*graph.Node) (outputs map[string]*graph.Node,
	gradients []*graph.Node) {
	names := map[*graph.Node][]string{} // of a node
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of.Inputs)) {
		if x := of.Inputs[name]; slices.Contains(wrt, x) {
			names[x], all = append(names[x], name), append(all, name)
		}
	}
	outputs = m.run(of, all)
	for _, x := range wrt {
		var sum *graph.Node
		for _, name := range names[x] {
			switch dx := outputs[autodiff.Prefix+name]; {
			case dx == nil: // it is no input
			case sum == nil:
				sum = dx
			default:
				sum = graph.Add(sum, dx)
			}
		}
		gradients = append(gradients, sum)
	}
	return outputs, gradients
}

// run computes the outputs of a program, with the gradients with respect to some inputs.
func (m programs) run(of Pass, wrt []string) map[string]*graph.Node {
	var g *graph.Graph
	for _, x := range of.Inputs {
		if x != nil {
			g = x.Graph()
		}
	}
	dev := engine.DeviceOf(g)
	if !dev.Fuses() {
		p, err := m.program(of, wrt)
		if err != nil {
			panic(err)
		}
		return graphs.For(m.LossTokens).Lower(g, p, lists.Map(p.Inputs, of.input), m.again())
	}
	of.plain = dev.Attention() == device.PlainAttention
	compiled, err := m.Plan(of, engine.Arithmetic(g), wrt)
	if err != nil {
		panic(err)
	}
	native := engine.Native{Name: "model", Outputs: lists.Map(compiled.Outputs(),
		func(t program.Type) shapes.Shape { return shapes.Make(dtypesOf[t.DType], t.Shape...) })}
	flat := func(t engine.Tensor) any { return t.Flat }
	native.Run = func(in, out []engine.Tensor, parallel engine.Parallel) error {
		return compiled.Run(lists.Map(in, flat), lists.Map(out, flat), parallel)
	}
	results := native.Call(lists.Map(compiled.Inputs(), of.input)...)
	outputs := map[string]*graph.Node{}
	for i, name := range compiled.OutputNames() {
		outputs[name] = results[i]
	}
	return outputs
}

func (of Pass) input(in program.Input) *graph.Node {
	x := of.Inputs[in.Name]
	switch {
	case x == nil:
		panic(fmt.Errorf("there is no tensor for the input %q of the model", in.Name))
	case !slices.Equal(x.Shape().Dimensions, in.Type.Shape):
		panic(fmt.Errorf("the tensor for the input %q of the model is %s, want %s", in.Name, x.Shape(),
			in.Type))
	}
	return x
}

var dtypesOf = map[program.DType]dtypes.DType{program.Float: dtypes.Float32,
	program.Int: dtypes.Int32, program.Uint: dtypes.Uint32, program.Bool: dtypes.Bool}

// Plan returns the plan of a program, which it keeps for the next call; see [Language].
func (m programs) Plan(of Pass, arithmetic matmul.Arithmetic, wrt []string) (*plan.Plan, error) {
	o := plan.Options{Arithmetic: arithmetic, Kernels: m.kernels(of.Shape), Idle: &m.idle}
	if of.plain {
		delete(o.Kernels, network.Attention)
	}
	key := fmt.Sprint(wrt, of.Key(), of.Shape, o.Arithmetic, of.plain, m.Options)
	if made, ok := m.made.Load(key); ok {
		return made.(*plan.Plan), nil
	}
	p, err := m.program(of, wrt)
	if err == nil {
		p, err = m.forPlan(p, o)
	}
	if err != nil {
		return nil, err
	}
	compiled, err := plan.Compile(p, o)
	if err == nil {
		m.made.Store(key, compiled)
	}
	return compiled, err
}

// kernels returns the kernels of a task.
func (m programs) kernels(shape network.Shape) kernels.Table {
	if shape.Task == network.Decode && shape.Context == 1 {
		return kernels.ForFew()
	}
	return kernels.For(m.LossTokens)
}

// forPlan expands the calls that have no kernel ([transform.Expand]), and lets kernels add sums.
func (m programs) forPlan(p *program.Program, o plan.Options) (*program.Program, error) {
	p, err := transform.Expand(p, o.Computes, m.again())
	if err != nil {
		return nil, err
	}
	return passes.AddInCalls(p, kernels.Sums...)
}

// again returns the name of the calls whose adjoints compute values of the forward pass again.
func (m programs) again() string {
	return map[architecture.Recompute]string{architecture.RecomputeBlocks: network.Block,
		architecture.RecomputeAttention: network.SelfAttention}[m.Recompute]
}

// program returns the program of a pass, with the gradients with respect to the named inputs.
func (m programs) program(of Pass, wrt []string) (*program.Program, error) {
	forward, err := m.write(of)
	if err != nil || len(wrt) == 0 {
		return forward, err
	}
	noInput := func(name string) bool { return forward.Input(name) < 0 }
	return network.Gradient(forward, slices.DeleteFunc(slices.Clone(wrt), noInput)...)
}
