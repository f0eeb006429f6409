// Package testquantizer quantizes nodes of graphs in tests, as models quantize activations.
package testquantizer

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Given holds a quantizer's inputs besides x: its trained parameters and state, in their order, and
// per-step inputs, which are nil if the quantizer does not take them.
type Given struct {
	Trained, State                  []*graph.Node
	Noise, SharedNoise, Step, Steps *graph.Node
}

// Quantize returns Q(x), and a function from its adjoint to those of x and the trained parameters.
func Quantize(x *graph.Node, given Given, q *fakequant.Quantizer) (value *graph.Node,
	back func(dy *graph.Node) []*graph.Node) {
	known := map[string]*graph.Node{spec.InputX: x, spec.InputNoise: given.Noise,
		spec.InputSharedNoise: given.SharedNoise, spec.InputStep: given.Step,
		spec.InputSteps: given.Steps}
	names := []string{spec.InputX}
	for i, t := range q.Trained() {
		names = append(names, spec.TrainedPrefix+t.Name)
		known[names[i+1]] = given.Trained[i]
	}
	for i, t := range q.State() {
		known[spec.KeptPrefix+t.Name] = given.State[i]
	}
	c := q.Call(true)
	in := lists.Map(c.Meaning.Inputs, func(in program.Input) *graph.Node { return known[in.Name] })
	forward := must(written(c))
	return lower.Calls{}.Lower(x.Graph(), forward, in, "")["y"], func(dy *graph.Node) []*graph.Node {
		p := must(autodiff.VJP(forward, "y", names...))
		out := lower.Calls{}.Lower(x.Graph(), p, append(in, dy), "")
		return lists.Map(names, func(name string) *graph.Node { return out[autodiff.Prefix+name] })
	}
}

// Lower adds what write writes, from values of the inputs, to their graph.
func Lower(inputs []*graph.Node, write func(in []program.Value) []program.Value) []*graph.Node {
	b, in := program.NewSimplifier("test"), []program.Value{}
	for i, x := range inputs {
		in = append(in, b.Input(fmt.Sprint("in", i), program.FloatType(x.Shape().Dimensions...)))
	}
	outputs := write(in)
	for i, v := range outputs {
		b.Output(fmt.Sprint("out", i), v)
	}
	out := lower.Calls{}.Lower(inputs[0].Graph(), must(b.Build()), inputs, "")
	return lists.Make(len(outputs), func(i int) *graph.Node { return out[fmt.Sprint("out", i)] })
}

// written returns the program of the value of a call.
func written(c *program.Call) (*program.Program, error) {
	b := program.NewBuilder("quantize")
	in := transform.Inputs(b, c.Meaning, nil)[:len(c.Meaning.Inputs)]
	b.Output("y", b.Call(c, in...)[0])
	return b.Build()
}

func must(p *program.Program, err error) *program.Program {
	if err != nil {
		panic(err) // the device makes an error of it
	}
	return p
}
