package executortest

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	_ "github.com/cage-qat/cage/host/testing/testdevice" // graphs on the CPU
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
)

// updates is the executor of package stage on the CPU device, by plans or, if kernels says so, by
// graphs. A kernel is a program, which Run compiles for a device with the given number of
// goroutines.
type updates struct {
	kernels device.Kernels
	devices map[int]*engine.Device
}

// compile compiles jobs for a device with the given number of goroutines.
func (x updates) compile(
	threads int, jobs ...stage.Job,
) (dev *engine.Device, u *stage.Update, err error) {
	if x.devices[threads] == nil {
		if x.devices[threads], err = engine.Open(device.CPU,
			engine.Options{Threads: threads, Kernels: x.kernels}); err != nil {
			return nil, nil, err
		}
	}
	u, err = stage.CompileUpdate(x.devices[threads], "suite", jobs, nil)
	return x.devices[threads], u, err
}

// Compile compiles a program.
func (x updates) Compile(p *program.Program) (any, error) {
	_, u, err := x.compile(1, jobOf(0, call{Program: p}))
	if err != nil {
		return nil, err
	}
	defer u.Close()
	return p, nil
}

// Run runs the calls as one update. Inputs that are overwritten by an output are donated, and the
// tensors of each call have unique names.
func (x updates) Run(threads int, calls []call) error {
	var jobs []stage.Job
	for i, c := range calls {
		jobs = append(jobs, jobOf(i, c))
	}
	dev, u, err := x.compile(threads, jobs...)
	if err != nil {
		return err
	}
	defer u.Close()
	tensors := stage.Tensors{}
	defer func() {
		for _, b := range tensors {
			b.Finalize()
		}
	}()
	for i, c := range calls {
		for _, in := range c.Program.Inputs {
			if tensors[jobs[i].Inputs[in.Name]], err = engine.Upload(dev, c.Inputs[in.Name],
				in.Type.Shape...); err != nil {
				return err
			}
		}
	}
	if _, err := u.Run(tensors, nil); err != nil {
		return err
	}
	for i, c := range calls {
		for name, data := range c.Outputs {
			if err := engine.DownloadInto(tensors[jobs[i].Outputs[name]], data); err != nil {
				return err
			}
		}
	}
	return nil
}

// jobOf returns the job of call i, with all inputs and outputs bound.
func jobOf(i int, c call) stage.Job {
	j := stage.Job{Tensor: fmt.Sprint("call ", i), Program: c.Program, Inputs: map[string]string{},
		Outputs: map[string]string{}, Donated: map[string]bool{}}
	for _, in := range c.Program.Inputs {
		j.Inputs[in.Name] = fmt.Sprint(i, "/", in.Name)
	}
	for _, o := range c.Program.Outputs {
		j.Outputs[o.Name] = fmt.Sprint(i, "/new ", o.Name)
		if data := c.Outputs[o.Name]; data != nil && c.Inputs[o.Name] != nil &&
			&data[0] == &c.Inputs[o.Name][0] {
			j.Outputs[o.Name], j.Donated[o.Name] = j.Inputs[o.Name], true
		}
	}
	return j
}

var (
	graphSubject = subject{
		executor: updates{kernels: device.GraphKernels, devices: map[int]*engine.Device{}},
		Accepts:  map[randprog.Family]float64{randprog.Elementwise: 1, randprog.General: 1},
	}
	updateSubject = subject{
		executor: updates{devices: map[int]*engine.Device{}},
		Accepts:  map[randprog.Family]float64{randprog.Elementwise: 1, randprog.General: 1},
	}
)

func TestGraph(t *testing.T) { testExecutor(t, graphSubject) }

// TestUpdates tests jobs that a plan runs together.
func TestUpdates(t *testing.T) { testExecutor(t, updateSubject) }
