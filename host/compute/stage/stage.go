package stage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/recovered"
	"github.com/cage-qat/cage/sdk/program"
)

// Values holds values of a program under construction, by the names of tensors.
type Values map[string]program.Value

// Nodes holds values of a graph under construction, by the names of tensors.
type Nodes map[string]*graph.Node

// Graph returns the graph of the nodes, of which there must be at least one.
func (n Nodes) Graph() *graph.Graph {
	for _, x := range n {
		return x.Graph()
	}
	panic("a stage without inputs")
}

// Specs describes the nodes as inputs for a stage.
func (n Nodes) Specs() (specs []engine.Spec) {
	for _, name := range slices.Sorted(maps.Keys(n)) {
		specs = append(specs, engine.Spec{Name: name, Shape: n[name].Shape()})
	}
	return specs
}

// A Stage is a function of named tensors, a program. It is compiled separately or becomes part of a
// larger graph.
type Stage struct {
	Name   string
	Inputs []engine.Spec // of whole tensors; donated ones are freed by the stage
	// Write writes the program. All floats are float32 in it, whatever their element types are.
	Write func(b *program.Builder, in Values) (out Values)
	// Stored has the element types of float outputs that are not stored in float32; integer types
	// are for floats that are integers in the range of the type.
	Stored map[string]shapes.DType
	// Replaces has donated inputs, by the names of the outputs that get their memory; without an
	// entry, that is the input of the same name.
	Replaces map[string]string
	Calls    Calls
	// Gathers tells that outputs are those of each replica's part of a batch, and that the parts of
	// all replicas are gathered.
	Gathers bool
	// Build, in place of Write, builds the graph of a stage that only accelerators run.
	Build func(in Nodes) Nodes
}

// Calls say how executors compute the calls of a program. The zero value has no calls but those of
// package calls.
type Calls struct {
	// Rounded tells that products round their operands to the device's precision, where the rules and
	// kernels say so; otherwise all products are of float32.
	Rounded bool
	Rules   lower.Calls // on accelerators
	// Kernels and those of them that add sums ([passes.AddInCalls]), on the CPU.
	Kernels map[string]func(*program.Call, plan.Options) (*plan.Kernel, error)
	Sums    []string
	// Attention is the name of the calls whose kernel is not used with [device.PlainAttention].
	Attention string
	// Recompute is the name of the calls whose adjoints compute values of the forward pass again.
	Recompute string
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

// portOf returns the name of a tensor as an input or output of a program, whose names have no
// spaces and brackets.
func portOf(tensor string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" %,:=()[]{}\"", r) {
			return '-'
		}
		return r
	}, tensor)
}

// Program returns the stage's program, and the tensors that its outputs are, in order. Inputs are
// those of the stage, in order.
func (s Stage) Program() (p *program.Program, outputs []string, err error) {
	b := program.NewSimplifier(portOf(s.Name))
	defer func() {
		if b.Err() != nil { // the first mistake may have made others
			err = b.Err()
		}
	}()
	defer recovered.Catch("stage", s.Name, &err)
	in := Values{}
	for _, spec := range s.Inputs {
		in[spec.Name] = b.Input(portOf(spec.Name), typeOf(spec.Shape))
	}
	out := Values{}
	if b.Err() == nil {
		out = s.Write(b, in)
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		b.Output(portOf(name), out[name])
		outputs = append(outputs, name)
	}
	p, err = b.Build()
	return p, outputs, err
}

func typeOf(s shapes.Shape) program.Type {
	t := program.FloatType(s.Dimensions...)
	switch s.DType {
	case shapes.Int32:
		t.DType = program.Int
	case shapes.Uint32:
		t.DType = program.Uint
	case shapes.Bool:
		t.DType = program.Bool
	}
	return t
}

// shapeOf returns the shape of an output.
func (s Stage) shapeOf(name string, t program.Type) shapes.Shape {
	shape := lower.ShapeOf(t)
	shape.DType = cmp.Or(s.Stored[name], shape.DType)
	return shape
}

// Compile compiles the stage for a device.
func (s Stage) Compile(dev *engine.Device, divided Divided) (*Executable, error) {
	if dev.UsesPlans() && s.Write != nil {
		e, err := s.compilePlan(dev)
		if err != nil {
			return nil, &engine.ExecutableError{Name: s.Name, Phase: engine.Building, Err: err}
		}
		return e, nil
	}
	return s.compileGraph(dev, divided)
}

// storages are the element types of floats that plans store in fewer bits.
var storages = map[shapes.DType]passes.Storage{shapes.BFloat16: passes.BFloat16,
	shapes.Float16: passes.Float16, shapes.Int8: passes.Int8, shapes.Uint8: passes.Uint8}

// compilePlan compiles the stage for the CPU.
func (s Stage) compilePlan(dev *engine.Device) (*Executable, error) {
	p, outputs, err := s.Program()
	if err == nil {
		err = lower.Check(p)
	}
	if err != nil {
		return nil, err
	}
	o := plan.Options{Arithmetic: matmul.Float32, Kernels: s.Calls.Kernels, Sums: s.Calls.Sums,
		Recompute: s.Calls.Recompute, Pool: dev.Memory(),
		Inputs: map[string]passes.Storage{}, Outputs: map[string]passes.Storage{},
		Replaces: map[string]string{}}
	if dev.Attention() == device.PlainAttention {
		o.Kernels = maps.Clone(o.Kernels)
		delete(o.Kernels, s.Calls.Attention)
	}
	if s.Calls.Rounded && dev.Precision() == device.BFloat16 {
		o.Arithmetic = matmul.BFloat16
	}
	for _, spec := range s.Inputs {
		o.Inputs[portOf(spec.Name)] = storages[spec.Shape.DType]
	}
	var results []shapes.Shape
	reuses := slices.Repeat([]int{-1}, len(outputs))
	for i, name := range outputs {
		shape := s.shapeOf(name, p.TypeOf(p.Outputs[i].Value))
		results, o.Outputs[portOf(name)] = append(results, shape), storages[shape.DType]
		from := cmp.Or(s.Replaces[name], name)
		at := slices.IndexFunc(s.Inputs, func(in engine.Spec) bool { return in.Name == from })
		if at < 0 {
			continue
		}
		if in := s.Inputs[at]; in.Donated && in.Shape.Equal(shape) {
			reuses[i], o.Replaces[portOf(name)] = at, portOf(from)
		}
	}
	compiled, err := plan.Compile(p, o)
	if err != nil {
		return nil, err
	}
	short := make([]bool, len(s.Inputs))
	for i, spec := range s.Inputs {
		short[i] = spec.Shape.DType == shapes.Float32 && compiled.ReadsBFloat16(i)
	}
	f := engine.Function{Outputs: results, Reuses: reuses, BFloat16: short,
		Temporary: int64(compiled.Memory()),
		Run:       compiled.Run}
	return &Executable{dev.Host(s.Name, s.Inputs, f), s.Inputs, outputs}, nil
}

// compileGraph compiles the stage for a device that runs graphs. Outputs that replace donated
// inputs come first, in the order of the inputs, so that each reuses the memory of its input.
func (s Stage) compileGraph(dev *engine.Device, divided Divided) (*Executable, error) {
	e := &Executable{Inputs: s.Inputs}
	build := func(_ *graph.Graph, in []*graph.Node) (out []*graph.Node) {
		named := Nodes{}
		for i, spec := range s.Inputs {
			if named[spec.Name] = in[i]; divided.divides(spec) {
				named[spec.Name] = engine.Gather(in[i])
			}
		}
		results := s.Lower(named)
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
			if s.Gathers {
				x = engine.Gather(x)
			}
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

// Lower adds the stage to a graph, given its inputs and perhaps other nodes. Like other functions
// that build graphs, it panics on a mistake.
func (s Stage) Lower(in Nodes) Nodes {
	if s.Build != nil {
		return s.Build(in)
	}
	p, outputs, err := s.Program()
	if err != nil {
		panic(err)
	}
	inputs := lists.Map(s.Inputs, func(spec engine.Spec) *graph.Node {
		x := in[spec.Name]
		switch {
		case x == nil:
			panic(fmt.Errorf("%s: there is no tensor %s", s.Name, spec.Name))
		case x.DType() == shapes.BFloat16, x.DType() == shapes.Float16, x.DType() == shapes.Uint8:
			return engine.Converted(x, shapes.Float32)
		}
		return x
	})
	results, out := s.Calls.Rules.Lower(inputs[0].Graph(), p, inputs, s.Calls.Recompute), Nodes{}
	for _, name := range outputs {
		x := results[portOf(name)]
		to, ok := s.Stored[name]
		if !ok && x.DType() == shapes.Int8 { // codes
			to, ok = shapes.Float32, true
		}
		if ok && x.DType() != to {
			x = engine.Converted(x, to)
		}
		out[name] = x
	}
	return out
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
