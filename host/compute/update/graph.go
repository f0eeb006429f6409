package update

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Nodes holds values of a graph under construction, by name.
type Nodes map[string]*graph.Node

// graphRunner runs jobs as one executable, on any device.
type graphRunner struct {
	dev     *engine.Device
	jobs    []Job
	exec    *engine.Executable
	inputs  []engine.Spec // without the vector of scalars, the last input
	outputs []string
	scalars []string
}

func compileGraph(dev *engine.Device, name string, jobs []Job, divided Divided) (*graphRunner, error) {
	r := &graphRunner{dev: dev, jobs: jobs, scalars: ScalarNames(jobs)}
	shapes, donated, outputs := shapesOf(jobs), map[string]bool{}, map[string]bool{}
	for _, j := range jobs {
		for input := range j.Donated {
			donated[j.Inputs[input]] = true
		}
		for _, name := range j.Outputs {
			outputs[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		r.inputs = append(r.inputs, engine.Spec{Name: name, Shape: shapes[name], Donated: donated[name]})
	}
	r.outputs = Order(r.inputs, outputs)
	specs := append(divided.Specs(dev, r.inputs), ScalarSpec(r.scalars))
	var err error
	r.exec, err = dev.Compile(name, specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		named := Nodes{}
		for i, spec := range r.inputs {
			named[spec.Name] = divided.Input(spec, in[i])
		}
		tensors, measures := Build(g, jobs, named, Unpack(in[len(r.inputs)], r.scalars))
		out := make([]*graph.Node, 0, len(r.outputs)+1)
		for _, name := range r.outputs {
			out = append(out, divided.Output(name, tensors[name]))
		}
		if len(measures) == 0 {
			return out
		}
		return append(out, graph.Concatenate(measures, 0))
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Order lists the names of outputs: first those of donated inputs, in their order, so
// that the engine reuses the memory of each such input for its own output, then the
// others by name.
func Order[V any](inputs []engine.Spec, outputs map[string]V) []string {
	var list []string
	for _, spec := range inputs {
		if _, ok := outputs[spec.Name]; ok && spec.Donated {
			list = append(list, spec.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// shapesOf returns the shapes of the tensors that jobs read, by name.
func shapesOf(jobs []Job) map[string]shapes.Shape {
	all := map[string]shapes.Shape{}
	for _, j := range jobs {
		for _, in := range j.Program.Inputs {
			if name, bound := j.Inputs[in.Name]; bound {
				dtype := dtypes.Float32
				if in.Type.DType == program.Uint { // a key of random bits
					dtype = dtypes.Uint32
				} else if storage, ok := j.Storage[name]; ok {
					dtype = DType(storage)
				}
				all[name] = shapes.Make(dtype, in.Type.Shape...)
			}
		}
	}
	return all
}

// run does the same as that of [cpuRunner].
func (r *graphRunner) run(in Tensors, scalars Scalars, out Tensors, measures Measures) error {
	values, err := scalars.Vector(r.scalars...)
	if err != nil {
		return err
	}
	vector, err := engine.Upload(r.dev, values, len(values))
	if err != nil {
		return err
	}
	defer vector.Finalize()
	var buffers []*engine.Buffer
	var donate []bool
	for _, spec := range r.inputs {
		buffers, donate = append(buffers, in[spec.Name]), append(donate, spec.Donated)
	}
	results, err := r.exec.Run(append(buffers, vector), append(donate, true))
	if err != nil {
		return err
	}
	for i, name := range r.outputs {
		out[name] = results[i]
	}
	if len(results) == len(r.outputs) { // the jobs have no measures
		return nil
	}
	measured := results[len(r.outputs)]
	defer measured.Finalize()
	if values, err = engine.Download[float32](measured); err != nil {
		return err
	}
	ReadMeasures(r.jobs, values, measures)
	return nil
}

// ReadMeasures stores the elements of the vector of the jobs' measures under their names.
func ReadMeasures(jobs []Job, values []float32, measures Measures) {
	for _, j := range jobs {
		for _, name := range j.Measures() {
			measures.set(name, j.Tensor, values[0])
			values = values[1:]
		}
	}
}

// ScalarNames lists the scalars that jobs read, in the order in which the vector holds
// them.
func ScalarNames(jobs []Job) []string {
	read := map[string]bool{}
	for _, j := range jobs {
		for _, in := range j.Program.Inputs {
			if _, bound := j.Inputs[in.Name]; !bound {
				read[in.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(read))
}

// ScalarSpec returns the input specification for the vector of scalars.
func ScalarSpec(names []string) engine.Spec {
	return engine.Spec{Name: "scalars", Shape: shapes.Make(dtypes.Float32, len(names))}
}

// Unpack returns the elements of the vector of scalars by name.
func Unpack(vector *graph.Node, names []string) Nodes {
	in := Nodes{}
	for i, name := range names {
		in[name] = graph.Reshape(graph.Slice(vector, graph.AxisRange(i, i+1)))
	}
	return in
}

// Build adds the jobs to a graph. Given the nodes of tensors and scalars by name, it returns the
// nodes of the tensors that the jobs write, and of their measures, each of shape [1].
func Build(g *graph.Graph, jobs []Job, tensors, scalars Nodes) (out Nodes, measures []*graph.Node) {
	out = Nodes{}
	for _, j := range jobs {
		in := make([]*graph.Node, len(j.Program.Inputs))
		for i, input := range j.Program.Inputs {
			name, bound := j.Inputs[input.Name]
			if in[i] = scalars[input.Name]; bound {
				in[i] = tensors[name]
			}
			if in[i] == nil {
				panic(fmt.Errorf("update of %s: its input %s is missing", j.Tensor, input.Name))
			}
			if bound && j.Storage[name] != sdk.StoreFloat32 {
				in[i] = engine.Converted(in[i], dtypes.Float32)
			}
		}
		results := lower.WithKernels(g, j.Program, in)
		for name, tensor := range j.Outputs {
			out[tensor] = narrow(results[name], j.Storage[tensor])
		}
		for _, name := range j.Measures() {
			measures = append(measures, graph.Reshape(results[name], 1))
		}
	}
	return out, measures
}
