package update

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/sdk/spec"
)

// Tensors holds buffers on a device, by name.
type Tensors map[string]*engine.Buffer

// Scalars holds the scalar inputs of a run, which all programs share, by the names of the
// programs' inputs.
type Scalars map[string]float32

// Vector returns the scalars with the given names, in that order.
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

// Measures holds the scalars that programs report to the host: by the name of the
// program's output, then by the job's tensor.
type Measures map[string]map[string]float64

// set stores the measure of one tensor.
func (m Measures) set(name, tensor string, value float32) {
	if m[name] == nil {
		m[name] = map[string]float64{}
	}
	m[name][tensor] = float64(value)
}

// Job is a program bound to tensors by name.
type Job = spec.Job

// An Executor is one way to run programs on a device.
type Executor interface {
	// Name returns a word for the executor, used in messages.
	Name() string
	// Compile prepares the jobs that the executor can run, to be run together, and
	// refuses the others. The runner is nil if it refuses all of them.
	Compile(dev *engine.Device, name string, jobs []Job) (Runner, []Refusal, error)
}

// A Runner runs the jobs that an executor has compiled.
type Runner interface {
	// Run computes the jobs from the tensors in in. It puts the new tensors into out, in
	// new buffers or in those of donated inputs, which are then gone.
	Run(in Tensors, scalars Scalars, out Tensors, measures Measures) error
	Close()
}

// A Refusal says why an executor does not run a job. The program itself is not at fault.
type Refusal struct {
	Job    Job
	Reason error
}

// Options are the options of an update.
type Options struct {
	// Executors are tried in this order. If it is nil, they are [CPU] and then [Graph] with
	// these options, which takes every program.
	Executors []Executor
	// Places says where the device keeps tensors.
	Places Places
}

// An Update is a compiled list of jobs.
type Update struct {
	runners  []Runner
	consumed []string // donated tensors that the jobs do not replace
	// Executed is the number of jobs that each executor runs, by the executor's name.
	Executed map[string]int
}

// Compile prepares jobs for a device. No two of them may replace the same tensor.
func Compile(dev *engine.Device, name string, jobs []Job, o Options) (*Update, error) {
	jobs = keepShared(jobs)
	u := &Update{consumed: consumedTensors(jobs), Executed: map[string]int{}}
	executors := o.Executors
	if executors == nil {
		executors = []Executor{CPU{}, Graph{o}}
	}
	rest := jobs
	var reasons []error
	for _, x := range executors {
		if len(rest) == 0 {
			break
		}
		r, refused, err := x.Compile(dev, name, rest)
		if err != nil {
			u.Close()
			return nil, err
		}
		if r != nil {
			u.runners = append(u.runners, r)
		}
		u.Executed[x.Name()] = len(rest) - len(refused)
		rest, reasons = nil, nil
		for _, f := range refused {
			rest, reasons = append(rest, f.Job), append(reasons, fmt.Errorf("%s: %w", f.Job.Tensor, f.Reason))
		}
	}
	if len(rest) > 0 {
		u.Close()
		return nil, fmt.Errorf("%s: no executor runs %d programs: %w", name, len(rest), errors.Join(reasons...))
	}
	return u, nil
}

// keepShared returns the jobs without donations of tensors that other jobs read, too.
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
		maps.DeleteFunc(jobs[i].Donated, func(input string, _ bool) bool { return readers[j.Inputs[input]] > 1 })
	}
	return jobs
}

// consumedTensors lists the donated tensors that jobs do not replace.
func consumedTensors(jobs []Job) []string {
	var list []string
	for _, j := range jobs {
		replaced := slices.Collect(maps.Values(j.Outputs))
		for input := range j.Donated {
			if name := j.Inputs[input]; !slices.Contains(replaced, name) {
				list = append(list, name)
			}
		}
	}
	slices.Sort(list)
	return list
}

// Run computes all jobs and puts the tensors that they write into t, in place of the old
// ones. Tensors that are donated and not replaced are removed from t. After an error,
// some buffers of t may be gone, and others replaced.
func (u *Update) Run(t Tensors, scalars Scalars) (Measures, error) {
	out, measures := Tensors{}, Measures{}
	for _, r := range u.runners {
		if err := r.Run(t, scalars, out, measures); err != nil {
			for _, b := range out {
				b.Finalize()
			}
			return nil, err
		}
	}
	for name, b := range out {
		t[name].Finalize()
		t[name] = b
	}
	for _, name := range u.consumed {
		t[name].Finalize()
		delete(t, name)
	}
	return measures, nil
}

// Close frees what Compile has made.
func (u *Update) Close() {
	for _, r := range u.runners {
		r.Close()
	}
}
