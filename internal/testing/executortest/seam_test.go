package executortest_test

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/internal/testing/executortest"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
)

// seam is an executor of package update on the CPU device. A kernel is the program, which
// is compiled for the device of so many goroutines.
type seam struct {
	update.Executor
	devices map[int]*engine.Device
}

func (s seam) device(threads int) (dev *engine.Device, err error) {
	if s.devices[threads] == nil {
		s.devices[threads], err = engine.Open(device.CPU, engine.Options{Threads: threads})
	}
	return s.devices[threads], err
}

// Compile asks the executor whether it takes the program.
func (s seam) Compile(p *program.Program) (executortest.Kernel, error) {
	dev, err := s.device(1)
	if err != nil {
		return nil, err
	}
	r, refused, err := s.Executor.Compile(dev, p.Name, []update.Job{jobOf(0, executortest.Call{Program: p})})
	if len(refused) > 0 {
		return nil, refusal(refused[0].Reason)
	}
	if err == nil {
		r.Close()
	}
	return p, err
}

// Run runs the calls as one update: so that inputs in whose place there is an output are
// donated, and the tensors of each call have names of their own.
func (s seam) Run(threads int, calls []executortest.Call) error {
	dev, err := s.device(threads)
	if err != nil {
		return err
	}
	tensors := update.Tensors{}
	defer func() {
		for _, b := range tensors {
			b.Finalize()
		}
	}()
	var jobs []update.Job
	for i, c := range calls {
		jobs = append(jobs, jobOf(i, c))
		for _, in := range c.Program.Inputs {
			if tensors[jobs[i].Inputs[in.Name]], err = engine.Upload(dev, c.Inputs[in.Name], in.Type.Shape...); err != nil {
				return err
			}
		}
	}
	r, _, err := s.Executor.Compile(dev, "suite", jobs)
	if err != nil {
		return err
	}
	defer r.Close()
	out := update.Tensors{}
	if err := r.Run(tensors, nil, out, update.Measures{}); err != nil {
		return err
	}
	for i, c := range calls {
		for name, data := range c.Outputs {
			if err := engine.DownloadInto(out[jobs[i].Outputs[name]], data); err != nil {
				return err
			}
			out[jobs[i].Outputs[name]].Finalize()
		}
	}
	return nil
}

// jobOf binds all inputs and outputs of call i.
func jobOf(i int, c executortest.Call) update.Job {
	j := update.Job{Tensor: fmt.Sprint("call ", i), Program: c.Program, Inputs: map[string]string{}, Outputs: map[string]string{}, Donated: map[string]bool{}}
	for _, in := range c.Program.Inputs {
		j.Inputs[in.Name] = fmt.Sprint(i, "/", in.Name)
	}
	for _, o := range c.Program.Outputs {
		j.Outputs[o.Name] = fmt.Sprint(i, "/new ", o.Name)
		if data := c.Outputs[o.Name]; data != nil && c.Inputs[o.Name] != nil && &data[0] == &c.Inputs[o.Name][0] {
			j.Outputs[o.Name], j.Donated[o.Name] = j.Inputs[o.Name], true
		}
	}
	return j
}

var (
	graphSubject = executortest.Subject{
		Executor: seam{update.Graph{}, map[int]*engine.Device{}},
		Accepts:  map[randprog.Family]float64{randprog.Elementwise: 1, randprog.General: 1},
	}
	cpuSubject = executortest.Subject{
		Executor: seam{update.CPU{}, map[int]*engine.Device{}},
		Accepts:  map[randprog.Family]float64{randprog.Elementwise: 1},
	}
	listSubject = executortest.Subject{
		Executor: seam{list{}, map[int]*engine.Device{}},
		Accepts:  map[randprog.Family]float64{randprog.Elementwise: 1, randprog.General: 1},
	}
)

func TestGraph(t *testing.T) { executortest.Run(t, graphSubject) }

func TestCPU(t *testing.T) { executortest.Run(t, cpuSubject) }

// TestList: the executors of the list together.
func TestList(t *testing.T) { executortest.Run(t, listSubject) }

// list is the list of executors as one.
type list struct{}

func (list) Name() string { return "list" }

func (list) Compile(dev *engine.Device, name string, jobs []update.Job) (update.Runner, []update.Refusal, error) {
	u, err := update.Compile(dev, name, jobs, update.Options{})
	return compiled{u}, nil, err
}

type compiled struct{ *update.Update }

func (c compiled) Run(in update.Tensors, scalars update.Scalars, out update.Tensors, m update.Measures) error {
	t := update.Tensors{}
	for name, b := range in {
		t[name] = b
	}
	_, err := c.Update.Run(t, scalars)
	for name, b := range t {
		if in[name] != b {
			out[name] = b
		}
	}
	return err
}
