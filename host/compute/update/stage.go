package update

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Nodes holds values of a graph under construction, by name.
type Nodes map[string]*graph.Node

// Graph returns the graph of the nodes, of which there must be at least one.
func (n Nodes) Graph() *graph.Graph {
	for _, x := range n {
		return x.Graph()
	}
	panic("a stage without inputs")
}

// A Stage is a function of named tensors. It is compiled separately or becomes part of a larger
// graph.
type Stage struct {
	Name   string
	Inputs []engine.Spec // of whole tensors; donated ones are freed by the stage
	Build  func(in Nodes) Nodes
}

// An Executable is a compiled [Stage].
type Executable struct {
	*engine.Executable
	Inputs  []engine.Spec
	outputs []string
}

// Divided reports whether a tensor is sharded, so that each replica keeps only its rows. The first
// axis of such a tensor must be divisible by the number of replicas. A nil Divided shards none.
type Divided func(tensor string, dims []int) bool

// Specs returns the inputs as they are on the device, given the inputs as whole tensors: a sharded
// input has the shape of one replica's part.
func (d Divided) Specs(dev *engine.Device, whole []engine.Spec) []engine.Spec {
	list := slices.Clone(whole)
	for i, spec := range list {
		if d.divides(spec) {
			list[i].Sharded, list[i].Shape = true, spec.Shape.Clone()
			list[i].Shape.Dimensions[0] /= dev.Count()
		}
	}
	return list
}

// divides reports whether an input must be marked as sharded; some, such as tokens, already are.
func (d Divided) divides(spec engine.Spec) bool {
	return d != nil && !spec.Sharded && d(spec.Name, spec.Shape.Dimensions)
}

// Compile compiles the stage for a device. Outputs that replace donated inputs come first, in the
// order of the inputs, so that each reuses the memory of its input.
func (s Stage) Compile(dev *engine.Device, divided Divided) (*Executable, error) {
	e := &Executable{Inputs: s.Inputs}
	build := func(_ *graph.Graph, in []*graph.Node) (out []*graph.Node) {
		named := Nodes{}
		for i, spec := range s.Inputs {
			if named[spec.Name] = in[i]; divided.divides(spec) {
				named[spec.Name] = engine.Gather(in[i])
			}
		}
		results := s.Build(named)
		e.outputs = nil
		for _, spec := range s.Inputs {
			if results[spec.Name] != nil && spec.Donated {
				e.outputs = append(e.outputs, spec.Name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(results)) {
			if !slices.Contains(e.outputs, name) {
				e.outputs = append(e.outputs, name)
			}
		}
		for _, name := range e.outputs {
			x := results[name]
			if divided != nil && divided(name, x.Shape().Dimensions) {
				x = engine.Sharded(engine.Rows(x))
			}
			out = append(out, x)
		}
		return out
	}
	var err error
	if e.Executable, err = dev.Compile(s.Name, divided.Specs(dev, s.Inputs), build); err != nil {
		return nil, err
	}
	return e, nil
}

// Run computes the stage and adds its outputs to t. Inputs are taken from t or else from borrowed,
// which is not changed. Donated inputs are removed from t.
func (e *Executable) Run(t Tensors, borrowed ...Tensors) error {
	in, donate := make([]*engine.Buffer, len(e.Inputs)), make([]bool, len(e.Inputs))
	for i, spec := range e.Inputs {
		in[i], donate[i] = t[spec.Name], spec.Donated
		for _, more := range borrowed {
			in[i] = cmp.Or(in[i], more[spec.Name])
		}
		if in[i] == nil {
			return fmt.Errorf("%s: tensor %s is missing", e.Name(), spec.Name)
		}
	}
	out, err := e.Executable.Run(in, donate)
	if err != nil {
		return err
	}
	for i, spec := range e.Inputs {
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

// OutputSpecs describes the outputs as inputs for another stage.
func (e *Executable) OutputSpecs() (specs []engine.Spec) {
	for i, shape := range e.Outputs() {
		specs = append(specs, engine.Spec{Name: e.outputs[i], Shape: shape})
	}
	return specs
}
