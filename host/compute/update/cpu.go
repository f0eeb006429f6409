package update

import (
	"context"
	"fmt"
	"runtime/pprof"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/engine"
)

// cpuRunner runs all jobs at once with package cpu, on a device whose memory is the host's. It
// replaces donated tensors in place.
type cpuRunner struct {
	dev   *engine.Device
	name  string
	jobs  []Job
	calls []cpu.Call
	// reclaim donates the consumed tensors and computes nothing; it is nil if there are none. It
	// returns their memory to the device's pool, so that the device need not allocate and clear new
	// memory in each step.
	reclaim *Executable
}

const reclaimed = "reclaimed" // the output of [cpuRunner.reclaim]

func (r *cpuRunner) compileReclaim() (err error) {
	consumed := consumedTensors(r.jobs)
	if len(consumed) == 0 {
		return nil
	}
	shapes := shapesOf(r.jobs)
	s := Stage{Name: "memory of " + r.name, Build: func(in Nodes) Nodes {
		return Nodes{reclaimed: engine.Constant(in.Graph(), []float32{0})}
	}}
	for _, name := range consumed {
		s.Inputs = append(s.Inputs, engine.Spec{Name: name, Shape: shapes[name], Donated: true})
	}
	r.reclaim, err = s.Compile(r.dev, nil)
	return err
}

// run computes the jobs from the tensors of in. It puts the new tensors into out. Their buffers are
// new or those of donated inputs, which are then gone.
func (r *cpuRunner) run(in Tensors, scalars Scalars, out Tensors, measures Measures) (err error) {
	defer func() { // drop references to the memory
		for i := range r.calls {
			clear(r.calls[i].Inputs)
			clear(r.calls[i].Outputs)
		}
	}()
	for i := range r.jobs {
		if err := r.bind(i, in, scalars, out); err != nil {
			return fmt.Errorf("%s of %s: %w", r.name, r.jobs[i].Tensor, err)
		}
	}
	pprof.Do(context.Background(), pprof.Labels(engine.ProfileLabel, r.name), func(context.Context) {
		err = cpu.Run(r.calls, r.dev.Parallel)
	})
	if err != nil {
		return err
	}
	for i, j := range r.jobs {
		for k, o := range j.Program.Outputs {
			if _, bound := j.Outputs[o.Name]; !bound {
				measures.set(o.Name, j.Tensor, r.calls[i].Outputs[k].([]float32)[0])
			}
		}
	}
	if r.reclaim == nil {
		return nil
	}
	if err = r.reclaim.Run(in); err == nil {
		err = in[reclaimed].Finalize()
		delete(in, reclaimed)
	}
	return err
}

func (r *cpuRunner) bind(i int, in Tensors, scalars Scalars, out Tensors) (err error) {
	j, call := &r.jobs[i], &r.calls[i]
	for k, input := range j.Program.Inputs {
		data, err := []float32(nil), error(nil)
		if name, bound := j.Inputs[input.Name]; bound {
			data, err = dataOf(in, name)
		} else {
			data, err = scalars.Vector(input.Name)
		}
		if err != nil {
			return err
		}
		call.Inputs[k] = data
	}
	for k, o := range j.Program.Outputs {
		name, bound := j.Outputs[o.Name]
		if !bound {
			call.Outputs[k] = make([]float32, 1)
			continue
		}
		if j.Donated[o.Name] {
			out[name], err = engine.Take(in[j.Inputs[o.Name]])
		} else {
			t := j.Program.TypeOf(o.Value)
			unset := func([]float32) error { return nil } // the program sets all elements
			out[name], err = engine.Fill(r.dev, t.Shape, unset)
		}
		if err != nil {
			return err
		}
		data, err := dataOf(out, name)
		if err != nil {
			return err
		}
		call.Outputs[k] = data
	}
	return nil
}

func dataOf(t Tensors, name string) ([]float32, error) {
	b := t[name]
	if b == nil {
		return nil, fmt.Errorf("the tensor %s is missing", name)
	}
	return engine.Data[float32](b)
}
