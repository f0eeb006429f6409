package update

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/spec"
)

// Tensors holds buffers on a device, by name.
type Tensors map[string]*engine.Buffer

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

// Job is a program bound to tensors by name.
type Job = spec.Job

// Options are the options of an update.
type Options struct {
	// OneGraph runs all jobs as one graph, even on the CPU, so that tests can compare both ways.
	OneGraph bool
	// Divided reports which tensors are sharded by rows.
	Divided Divided
}

// An Update is a compiled list of jobs.
type Update struct {
	dev       *engine.Device
	cpu       *cpuRunner
	graph     *Executable
	graphJobs []Job
	// Executed is the number of jobs run by package cpu ("cpu") and by the graph ("graph").
	Executed map[string]int
}

// Compile prepares jobs for a device. Each tensor may be replaced by at most one job. On the CPU,
// package cpu runs the jobs that it supports; all others form one graph.
func Compile(dev *engine.Device, name string, jobs []Job, o Options) (*Update, error) {
	jobs = keepShared(jobs)
	u := &Update{dev: dev, Executed: map[string]int{}}
	own, rest := &cpuRunner{dev: dev, name: name}, jobs
	if dev.SharesMemory() && !o.OneGraph {
		rest = nil
		for _, j := range jobs {
			if len(j.Storage) > 0 {
				rest = append(rest, j)
				continue
			}
			kernel, err := cpu.CompileFlat(j.Program)
			_, refused := errors.AsType[*passes.Refusal](err)
			switch {
			case refused:
				rest = append(rest, j)
			case err != nil:
				return nil, err
			default:
				own.jobs = append(own.jobs, j)
				own.calls = append(own.calls, cpu.Call{
					Kernel: kernel, Inputs: make([]any, len(j.Program.Inputs)),
					Outputs: make([]any, len(j.Program.Outputs)),
				})
			}
		}
	}
	var err error
	if len(own.jobs) > 0 {
		u.cpu, u.Executed["cpu"] = own, len(own.jobs)
		err = own.compileReclaim()
	}
	if len(rest) > 0 && err == nil {
		u.graphJobs, u.Executed["graph"] = rest, len(rest)
		u.graph, err = graphStage(name, rest).Compile(dev, o.Divided)
	}
	if err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
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

// Run runs all jobs and replaces in t the tensors that they write. Tensors that are donated but not
// replaced are removed from t. After an error, some buffers of t may be gone and others replaced.
func (u *Update) Run(t Tensors, scalars Scalars) (Measures, error) {
	out, measures := Tensors{}, Measures{}
	var err error
	if u.cpu != nil {
		err = u.cpu.run(t, scalars, out, measures)
	}
	if u.graph != nil && err == nil {
		err = u.runGraph(t, scalars, measures)
	}
	if err != nil {
		for _, b := range out {
			b.Finalize()
		}
		return nil, err
	}
	for name, b := range out {
		t[name].Finalize()
		t[name] = b
	}
	return measures, nil
}

// Close frees the compiled jobs.
func (u *Update) Close() {
	if u.cpu != nil && u.cpu.reclaim != nil {
		u.cpu.reclaim.Close()
	}
	if u.graph != nil {
		u.graph.Close()
	}
}
