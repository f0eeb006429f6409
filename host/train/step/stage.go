package step

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
)

// stage is a part of a step: a function of named tensors. It is compiled by itself, or
// becomes a part of a larger graph.
type stage struct {
	name   string
	inputs []engine.Spec // those that are donated are gone afterwards
	build  func(g *graph.Graph, in update.Nodes) update.Nodes
}

// executable is a compiled stage.
type executable struct {
	exec    *engine.Executable
	inputs  []engine.Spec
	outputs []string
}

// compile compiles a stage.
func (s stage) compile(dev *engine.Device) (*executable, error) {
	e := &executable{inputs: s.inputs}
	var err error
	e.exec, err = dev.Compile(s.name, s.inputs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		named := update.Nodes{}
		for i, spec := range s.inputs {
			named[spec.Name] = in[i]
		}
		results := s.build(g, named)
		e.outputs = update.Order(s.inputs, results)
		out := make([]*graph.Node, len(e.outputs))
		for i, name := range e.outputs {
			out[i] = results[name]
		}
		return out
	})
	return e, err
}

// run computes a stage from tensors in t and adds its outputs to them. Donated inputs are
// gone from t.
func (e *executable) run(t update.Tensors) error {
	in, donate := make([]*engine.Buffer, len(e.inputs)), make([]bool, len(e.inputs))
	for i, spec := range e.inputs {
		if in[i] = t[spec.Name]; in[i] == nil {
			return fmt.Errorf("step: %s: there is no tensor %s", e.exec.Name(), spec.Name)
		}
		donate[i] = spec.Donated
	}
	out, err := e.exec.Run(in, donate)
	if err != nil {
		return err
	}
	for i, spec := range e.inputs {
		if donate[i] {
			delete(t, spec.Name)
		}
	}
	for i, name := range e.outputs {
		t[name].Finalize()
		t[name] = out[i]
	}
	return nil
}

// outputSpecs are the outputs as inputs of another stage.
func (e *executable) outputSpecs() []engine.Spec {
	var specs []engine.Spec
	for i, shape := range e.exec.Outputs() {
		specs = append(specs, engine.Spec{Name: e.outputs[i], Shape: shape})
	}
	return specs
}

// downloadTotal adds up a float vector of t in float64.
func downloadTotal(t update.Tensors, name string) (float64, error) {
	values, err := engine.Download[float32](t[name])
	total := 0.0
	for _, v := range values {
		total += float64(v)
	}
	return total, err
}
