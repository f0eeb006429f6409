package stage

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Names of the tensors in a stage of jobs besides those that the jobs name.
const (
	ScalarsName  = "scalars"  // the vector of their scalars
	MeasuresName = "measures" // the vector of their measures
)

// Job is a program bound to tensors by name.
type Job = spec.Job

// An Update is a compiled list of jobs.
type Update struct {
	*Executable
	dev  *engine.Device
	jobs []Job
}

// CompileUpdate compiles jobs for a device. Each tensor may be replaced by at most one job. divided
// reports which tensors are sharded by rows.
func CompileUpdate(dev *engine.Device, name string, jobs []Job, divided Divided) (*Update, error) {
	e, err := OfJobs(name, jobs).Compile(dev, divided)
	if err != nil {
		return nil, err
	}
	return &Update{e, dev, jobs}, nil
}

// OfJobs returns the stage that runs jobs. It takes their scalars, in the order of [ScalarNames],
// as one vector, and returns their measures as one.
func OfJobs(name string, jobs []Job) Stage {
	jobs = keepShared(jobs)
	inputs, donated := shapesOf(jobs), map[string]bool{}
	s := Stage{Name: name, Stored: map[string]shapes.DType{}}
	if scalars := ScalarNames(jobs); len(scalars) > 0 {
		s.Inputs = append(s.Inputs, ScalarSpec(scalars))
	}
	for _, j := range jobs {
		for input := range j.Donated {
			donated[j.Inputs[input]] = true
		}
		for tensor, storage := range j.Storage {
			s.Stored[tensor] = DType(storage)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		spec := engine.Spec{Name: name, Shape: inputs[name], Donated: donated[name]}
		s.Inputs = append(s.Inputs, spec)
	}
	s.Write = func(b *program.Builder, in Values) Values { return write(b, jobs, in) }
	return s
}

func write(b *program.Builder, jobs []Job, in Values) (out Values) {
	scalars, out := Values{}, Values{}
	for i, name := range ScalarNames(jobs) {
		scalars[name] = in[ScalarsName].At(0, i, i+1).Reshape()
	}
	var measures []program.Value
	for _, j := range jobs {
		var args []program.Value
		for _, input := range j.Program.Inputs {
			if name, bound := j.Inputs[input.Name]; bound {
				args = append(args, in[name])
			} else {
				args = append(args, scalars[input.Name])
			}
		}
		results := transform.Inline(b, j.Program, args...)
		for name, tensor := range j.Outputs {
			v := results[name]
			switch j.Storage[tensor] { // as [spec.Storage.Round]
			case spec.StoreInt8:
				v = v.Clip(-128, 127).Round()
			case spec.StoreUint8:
				v = v.Clip(0, 255).Round()
			}
			out[tensor] = v
		}
		for _, name := range j.Measures() {
			measures = append(measures, results[name])
		}
	}
	if len(measures) > 0 {
		out[MeasuresName] = Vector(measures...)
	}
	return out
}

// Vector returns the vector of numbers.
func Vector(numbers ...program.Value) program.Value {
	for i, v := range numbers {
		numbers[i] = v.Reshape(1)
	}
	if len(numbers) == 1 {
		return numbers[0]
	}
	return numbers[0].Concatenate(0, numbers[1:]...)
}

func shapesOf(jobs []Job) map[string]shapes.Shape {
	all := map[string]shapes.Shape{}
	for _, j := range jobs {
		for _, in := range j.Program.Inputs {
			if name, bound := j.Inputs[in.Name]; bound {
				shape := lower.ShapeOf(in.Type)
				if storage, ok := j.Storage[name]; ok {
					shape.DType = DType(storage)
				}
				all[name] = shape
			}
		}
	}
	return all
}

// keepShared returns the jobs, without donations of tensors that other jobs also read.
func keepShared(jobs []Job) []Job {
	readers := map[string]int{}
	for _, j := range jobs {
		for _, name := range j.Inputs {
			readers[name]++
		}
	}
	jobs = slices.Clone(jobs)
	for i, j := range jobs {
		jobs[i].Donated = maps.Clone(j.Donated)
		maps.DeleteFunc(jobs[i].Donated, func(input string, _ bool) bool {
			return readers[j.Inputs[input]] > 1
		})
	}
	return jobs
}

// Run runs all jobs and replaces in t the tensors that they write. Tensors that are donated but not
// replaced are removed from t. After an error, some buffers of t may be gone.
func (u *Update) Run(t Tensors, scalars Scalars) (Measures, error) {
	values, err := scalars.Vector(ScalarNames(u.jobs)...)
	if err != nil {
		return nil, err
	}
	given := Tensors{}
	if len(values) > 0 {
		if given[ScalarsName], err = engine.Upload(u.dev, values, len(values)); err != nil {
			return nil, err
		}
		defer given[ScalarsName].Finalize()
	}
	if err := u.Executable.Run(t, given); err != nil {
		return nil, err
	}
	measures := Measures{}
	if measured := t[MeasuresName]; measured != nil {
		defer measured.Finalize()
		delete(t, MeasuresName)
		if values, err = engine.Download[float32](measured); err != nil {
			return nil, err
		}
		ReadMeasures(u.jobs, values, measures)
	}
	return measures, nil
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
	return engine.Spec{Name: ScalarsName, Shape: shapes.Make(shapes.Float32, len(names))}
}

// Tensors holds buffers on a device, by name.
type Tensors map[string]*engine.Buffer

// Finalize frees the buffers.
func (t Tensors) Finalize() {
	for _, b := range t {
		b.Finalize()
	}
}

// Scalars holds the scalar inputs, which all programs share, by the names of the programs' inputs.
type Scalars map[string]float32

// Vector returns the named scalars in the order of the names, or an error if one is missing.
func (s Scalars) Vector(names ...string) ([]float32, error) {
	values := make([]float32, len(names))
	for i, name := range names {
		v, ok := s[name]
		if !ok {
			return nil, fmt.Errorf("the scalar %s is missing", name)
		}
		values[i] = v
	}
	return values, nil
}

// Measures holds the scalars that programs report to the host, by the name of the program's output,
// then by the job's tensor.
type Measures map[string]map[string]float64

func (m Measures) set(name, tensor string, value float32) {
	if m[name] == nil {
		m[name] = map[string]float64{}
	}
	m[name][tensor] = float64(value)
}
