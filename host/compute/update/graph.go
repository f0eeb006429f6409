package update

import (
	"cmp"
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

// Graph is an executor that runs all its jobs as one compiled graph, on any device.
type Graph struct{ Options }

// Name implements [Executor].
func (Graph) Name() string { return "graph" }

// Compile implements [Executor].
func (x Graph) Compile(dev *engine.Device, name string, jobs []Job) (Runner, []Refusal, error) {
	r := &graphRunner{dev: dev, jobs: jobs, scalars: ScalarNames(jobs)}
	r.listTensors()
	specs := append(x.Places.Specs(dev, r.inputs), ScalarSpec(r.scalars))
	var err error
	r.exec, err = dev.Compile(name, specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		named := Nodes{}
		for i, spec := range r.inputs {
			named[spec.Name] = x.Places.Input(spec, in[i])
		}
		tensors, measures := x.Build(g, jobs, named, Unpack(in[len(r.inputs)], r.scalars))
		out := make([]*graph.Node, 0, len(r.outputs)+1)
		for _, name := range r.outputs {
			out = append(out, x.Places.Output(name, tensors[name]))
		}
		if len(measures) == 0 {
			return out
		}
		return append(out, graph.Concatenate(measures, 0))
	})
	if err != nil {
		return nil, nil, err
	}
	return r, nil, nil
}

// graphRunner runs jobs as one executable.
type graphRunner struct {
	dev     *engine.Device
	jobs    []Job
	exec    *engine.Executable
	inputs  []engine.Spec // without the scalars, which are the last input
	outputs []string
	scalars []string
}

// listTensors lists the inputs and the outputs. Outputs that replace donated inputs come in
// the order of the inputs, as the engine pairs them.
func (r *graphRunner) listTensors() {
	shapes, donated := shapesOf(r.jobs), map[string]bool{}
	outputs := map[string]bool{}
	for _, j := range r.jobs {
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

// Run implements [Runner].
func (r *graphRunner) Run(in Tensors, scalars Scalars, out Tensors, measures Measures) error {
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

// Close implements [Runner].
func (r *graphRunner) Close() { r.exec.Close() }

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

// Build adds the jobs to a graph. Given the nodes of tensors and scalars by name, it
// returns those of the tensors that the jobs write, and those of their measures, each of
// shape [1]. Tensors that are in the machine's memory are fetched for one job after
// the other, and those of the first when after has been computed.
func (o Options) Build(g *graph.Graph, jobs []Job, tensors, scalars Nodes, after ...*graph.Node) (out Nodes, measures []*graph.Node) {
	out = Nodes{}
	inputs := func(j *Job) Nodes { return inputNodes(j, tensors, scalars, after) }
	done := func(j *Job, results Nodes) { after = computed(j, tensors, results) }
	for i, results := range o.build(g, jobs, inputs, done) {
		for name, tensor := range jobs[i].Outputs {
			out[tensor] = narrow(results[name], jobs[i].Storage[tensor])
		}
		for _, name := range jobs[i].Measures() {
			measures = append(measures, graph.Reshape(results[name], 1))
		}
	}
	return out, measures
}

// computed returns what there is as soon as a job has been computed: a result that stays on the device, if there is one.
func computed(j *Job, tensors, results Nodes) []*graph.Node {
	names := slices.SortedFunc(maps.Keys(results), func(a, b string) int {
		stays := func(result string) int {
			if x, kept := tensors[j.Outputs[result]]; kept && !engine.InHost(x) {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(stays(a), stays(b)), cmp.Compare(a, b))
	})
	if len(names) == 0 {
		return nil
	}
	result := results[names[0]]
	if engine.HasRows(result) {
		result = engine.Rows(result)
	}
	return []*graph.Node{result}
}

// inputNodes returns the inputs of the job's program by name. What is in the machine's memory is fetched after some other nodes.
func inputNodes(j *Job, tensors, scalars Nodes, after []*graph.Node) Nodes {
	in := Nodes{}
	for _, input := range j.Program.Inputs {
		var ok bool
		if name, bound := j.Inputs[input.Name]; bound {
			if in[input.Name], ok = tensors[name]; ok {
				in[input.Name] = engine.Fetch(in[input.Name], after...)
			}
			if j.Storage[name] != sdk.StoreFloat32 {
				in[input.Name] = engine.Converted(in[input.Name], dtypes.Float32)
			}
		} else {
			in[input.Name], ok = scalars[input.Name]
		}
		if !ok {
			panic(fmt.Errorf("update of %s: its input %s is missing", j.Tensor, input.Name))
		}
	}
	return in
}

// build builds all jobs, each from its inputs by name to its outputs by name. It asks for the inputs of a job when it builds it, and
// says when it has.
func (o Options) build(g *graph.Graph, jobs []Job, inputs func(*Job) Nodes, done func(*Job, Nodes)) []Nodes {
	out := make([]Nodes, len(jobs))
	for i, j := range jobs {
		in := inputs(&j)
		out[i] = lower.WithKernels(g, j.Program, arguments(j.Program, in))
		done(&j, out[i])
	}
	return out
}

// arguments orders inputs as a program declares them.
func arguments(p *program.Program, in Nodes) []*graph.Node {
	args := make([]*graph.Node, len(p.Inputs))
	for i, input := range p.Inputs {
		args[i] = in[input.Name]
	}
	return args
}
