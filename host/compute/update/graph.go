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

// Names of the tensors in a graph of jobs besides those that the jobs name.
const (
	ScalarsName  = "scalars"  // the vector of their scalars
	measuresName = "measures" // the vector of their measures
)

func graphStage(name string, jobs []Job) Stage {
	shapes, donated := shapesOf(jobs), map[string]bool{}
	for _, j := range jobs {
		for input := range j.Donated {
			donated[j.Inputs[input]] = true
		}
	}
	scalars := ScalarNames(jobs)
	inputs := []engine.Spec{ScalarSpec(scalars)}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		spec := engine.Spec{Name: name, Shape: shapes[name], Donated: donated[name]}
		inputs = append(inputs, spec)
	}
	return Stage{Name: name, Inputs: inputs, Build: func(in Nodes) Nodes {
		out, measures := Build(jobs, in, Unpack(in[ScalarsName], scalars))
		if len(measures) > 0 {
			out[measuresName] = graph.Concatenate(measures, 0)
		}
		return out
	}}
}

func (u *Update) runGraph(t Tensors, scalars Scalars, measures Measures) error {
	values, err := scalars.Vector(ScalarNames(u.graphJobs)...)
	if err != nil {
		return err
	}
	vector, err := engine.Upload(u.dev, values, len(values))
	if err != nil {
		return err
	}
	defer vector.Finalize()
	if err := u.graph.Run(t, Tensors{ScalarsName: vector}); err != nil {
		return err
	}
	if measured := t[measuresName]; measured != nil {
		defer measured.Finalize()
		delete(t, measuresName)
		if values, err = engine.Download[float32](measured); err != nil {
			return err
		}
		ReadMeasures(u.graphJobs, values, measures)
	}
	return nil
}

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

// ReadMeasures stores values, the measures of all jobs, under their names.
func ReadMeasures(jobs []Job, values []float32, measures Measures) {
	for _, j := range jobs {
		for _, name := range j.Measures() {
			measures.set(name, j.Tensor, values[0])
			values = values[1:]
		}
	}
}

// ScalarNames lists the scalars that jobs read, in the order of their vector.
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

// ScalarSpec returns the input specification for the vector of the named scalars.
func ScalarSpec(names []string) engine.Spec {
	return engine.Spec{Name: ScalarsName, Shape: shapes.Make(dtypes.Float32, len(names))}
}

// Unpack returns the elements of the vector of scalars by name.
func Unpack(vector *graph.Node, names []string) Nodes {
	in := Nodes{}
	for i, name := range names {
		in[name] = graph.Reshape(graph.Slice(vector, graph.AxisRange(i, i+1)))
	}
	return in
}

// Build adds the jobs to a graph. Given named tensors and scalars, it returns the nodes of the
// tensors that the jobs write, and of the jobs' measures, each of shape [1].
func Build(jobs []Job, tensors, scalars Nodes) (out Nodes, measures []*graph.Node) {
	out = Nodes{}
	for _, j := range jobs {
		in := make([]*graph.Node, len(j.Program.Inputs))
		for i, input := range j.Program.Inputs {
			name, bound := j.Inputs[input.Name]
			if in[i] = scalars[input.Name]; bound {
				in[i] = tensors[name]
			}
			if in[i] == nil {
				panic(fmt.Errorf("update of %s: input %s is missing", j.Tensor, input.Name))
			}
			if bound && j.Storage[name] != sdk.StoreFloat32 {
				in[i] = engine.Converted(in[i], dtypes.Float32)
			}
		}
		results := lower.WithKernels(tensors.Graph(), j.Program, in)
		for name, tensor := range j.Outputs {
			out[tensor] = narrow(results[name], j.Storage[tensor])
		}
		for _, name := range j.Measures() {
			measures = append(measures, graph.Reshape(results[name], 1))
		}
	}
	return out, measures
}
