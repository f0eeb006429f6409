package update

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Null is an executor that takes every job, checks its arguments, and computes nothing:
// tensors that a job replaces stay as they are; new tensors and measures are zero. A step
// that uses it costs as much as a step without the arithmetic of its update. It is also
// the skeleton from which to write a new executor.
type Null struct{}

// Name implements [Executor].
func (Null) Name() string { return "null" }

// Compile implements [Executor].
func (Null) Compile(dev *engine.Device, name string, jobs []Job) (Runner, []Refusal, error) {
	for _, j := range jobs {
		if err := checkBinding(&j); err != nil {
			return nil, nil, fmt.Errorf("%s of %s: %w", name, j.Tensor, err)
		}
	}
	return nullRunner{dev, name, jobs}, nil, nil
}

// checkBinding fails if the job binds or donates inputs or outputs that its program does not have.
func checkBinding(j *Job) error {
	var errs []error
	inputs, outputs := map[string]bool{}, map[string]bool{}
	for _, in := range j.Program.Inputs {
		inputs[in.Name] = true
	}
	for _, o := range j.Program.Outputs {
		outputs[o.Name] = true
	}
	for name := range j.Inputs {
		if !inputs[name] {
			errs = append(errs, fmt.Errorf("the program has no input %s", name))
		}
	}
	for name := range j.Donated {
		if _, bound := j.Inputs[name]; !bound {
			errs = append(errs, fmt.Errorf("the input %s is donated and bound to no tensor", name))
		}
	}
	for name := range j.Outputs {
		if !outputs[name] {
			errs = append(errs, fmt.Errorf("the program has no output %s", name))
		}
	}
	return errors.Join(errs...)
}

// nullRunner checks the arguments of its jobs, and computes nothing.
type nullRunner struct {
	dev  *engine.Device
	name string
	jobs []Job
}

// Run implements [Runner].
func (r nullRunner) Run(in Tensors, scalars Scalars, out Tensors, measures Measures) error {
	for i := range r.jobs {
		if err := r.run(&r.jobs[i], in, scalars, out, measures); err != nil {
			return fmt.Errorf("%s of %s: %w", r.name, r.jobs[i].Tensor, err)
		}
	}
	return nil
}

func (r nullRunner) run(j *Job, in Tensors, scalars Scalars, out Tensors, measures Measures) error {
	for _, input := range j.Program.Inputs {
		name, bound := j.Inputs[input.Name]
		if !bound {
			if _, err := scalars.Vector(input.Name); err != nil {
				return err
			}
			continue
		}
		switch b := in[name]; {
		case b == nil:
			return fmt.Errorf("the tensor %s is missing", name)
		case !slices.Equal(b.Shape().Dimensions, input.Type.Shape):
			return fmt.Errorf("the tensor %s has shape %v, and the program's input %s %v", name, b.Shape().Dimensions, input.Name, input.Type.Shape)
		}
	}
	for _, o := range j.Program.Outputs {
		name, bound := j.Outputs[o.Name]
		switch {
		case !bound:
			measures.set(o.Name, j.Tensor, 0)
		case in[name] == nil:
			zeros, err := engine.Zeros(r.dev, j.Program.TypeOf(o.Value).Shape...)
			if err != nil {
				return err
			}
			out[name] = zeros
		}
	}
	return nil
}

// Close implements [Runner].
func (nullRunner) Close() {}
