package executortest_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/internal/executortest"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/internal/randprog"
	"github.com/cage-qat/cage/sdk/program"
)

// graphs is package lower on the CPU device. A kernel is the program, which is compiled
// for the device of so many goroutines.
type graphs struct{ devices map[int]*engine.Device }

func (graphs) Compile(p *program.Program) (executortest.Kernel, error) { return p, nil }

func (x graphs) Run(threads int, calls []executortest.Call) (err error) {
	dev := x.devices[threads]
	if dev == nil {
		if dev, err = engine.Open(engine.CPU, engine.Options{Threads: threads}); err != nil {
			return err
		}
		x.devices[threads] = dev
	}
	for _, c := range calls {
		if err := runGraph(dev, c); err != nil {
			return err
		}
	}
	return nil
}

// runGraph runs a call. Inputs in whose place there is an output are given away.
func runGraph(dev *engine.Device, c executortest.Call) error {
	var specs []engine.Spec
	var buffers []*engine.Buffer
	var given []bool
	for _, in := range c.Program.Inputs {
		data, out := c.Inputs[in.Name], c.Outputs[in.Name]
		b, err := engine.Upload(dev, data, in.Type.Shape...)
		if err != nil {
			return err
		}
		specs = append(specs, engine.Spec{Name: in.Name, Shape: shapes.Make(dtypes.Float32, in.Type.Shape...)})
		buffers, given = append(buffers, b), append(given, out != nil && &out[0] == &data[0])
	}
	exec, err := dev.Compile(c.Program.Name, specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return lower.Outputs(g, c.Program, in)
	})
	if err != nil {
		return err
	}
	defer exec.Close()
	results, err := exec.Run(buffers, given)
	if err != nil {
		return err
	}
	defer engine.FinalizeAll(append(results, buffers...)...)
	for i, o := range c.Program.Outputs {
		if err := engine.DownloadInto(results[i], c.Outputs[o.Name]); err != nil {
			return err
		}
	}
	return nil
}

var graphSubject = executortest.Subject{
	Executor: graphs{map[int]*engine.Device{}},
	Accepts:  map[randprog.Kind]float64{randprog.Elementwise: 1, randprog.Products: 1, randprog.General: 1},
}

func TestGraph(t *testing.T) { executortest.Run(t, graphSubject) }
