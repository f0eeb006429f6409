package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// ProfileLabel is the label in CPU profiles that holds the name of the running executable.
const ProfileLabel = "executable"

// A Spec describes one input of an executable: its name, element type and dimensions.
type Spec struct {
	Name  string       // unique among the inputs of an executable
	Shape shapes.Shape // as seen by one replica

	// Sharded inputs are uploaded with [UploadSharded]; Shape is that of one replica's part. With
	// one replica the flag has no effect.
	Sharded bool

	// Donated inputs lend their memory to an output: the first of the same shape that no earlier
	// input has taken. Parameters and states are thus updated in place if their new values are
	// returned in the same order. The flag does not change results. Each call of Run still chooses
	// which inputs it donates; an input that is declared as donated but not donated is copied. A
	// [Function] says itself which memory it reuses.
	Donated bool
}

// A BuildFunc builds the graph of an executable: it receives one node per input, in order, and
// returns the outputs, of which there must be at least one. It may panic, as the functions of
// package graph do.
type BuildFunc func(g *graph.Graph, inputs []*graph.Node) []*graph.Node

// An Executable is a compiled function. Run may be called from several goroutines at once.
type Executable struct {
	device  *Device
	name    string
	inputs  []Spec
	outputs []shapes.Shape // of buffers
	sharded []bool         // which outputs are sharded
	// numbered tells that the program takes the number of each replica as its last input.
	numbered bool
	program  program   // nil on the CPU device, and after Close
	host     *Function // on the CPU device
}

// GraphsOnCPU returns a function that computes a graph on slices of its parameters and results.
// Tests set it, to compare plans of the CPU device with graphs.
var GraphsOnCPU func(g *graph.Graph) (func(in []any) (out []any, err error), error)

// Compile builds the graph of an executable and compiles it for the device. The name appears in
// every error of the executable. The caller must Close the executable to free its memory.
func (d *Device) Compile(name string, inputs []Spec, build BuildFunc) (*Executable, error) {
	if err := d.checkOpen(); err != nil {
		return nil, &ExecutableError{name, Building, err}
	}
	if d.kind == device.CPU && GraphsOnCPU == nil {
		return nil, &ExecutableError{name, Building, errors.New("the CPU device computes no graphs")}
	}
	g := graph.New(name, d.Count())
	g.Attach(deviceKey{}, d)
	if err := catch(func() error {
		for _, spec := range inputs {
			if spec.Sharded && spec.Shape.Rank() == 0 {
				return fmt.Errorf("input %q is a scalar, which has no rows for the replicas", spec.Name)
			}
		}
		outputs := build(g, lists.Map(inputs, func(spec Spec) *graph.Node {
			return graph.Parameter(g, spec.Name, spec.Shape)
		}))
		if len(outputs) == 0 || slices.Contains(outputs, nil) {
			return fmt.Errorf("got outputs %v, want at least one and none nil", outputs)
		}
		g.Return(outputs)
		return nil
	}); err != nil {
		return nil, &ExecutableError{name, Building, err}
	}
	d.compiled.Add(1)
	e := &Executable{device: d, name: name, inputs: inputs, numbered: g.State(replicaKey{}) != nil}
	var parts []shapes.Shape // of the outputs, on each replica
	for _, output := range g.Main().Results {
		whole := output.Shape()
		_, sharded := graph.NoteOf[shardedOutput](output)
		if sharded {
			whole = timesReplicas(whole, d.Count())
		}
		parts, e.outputs = append(parts, output.Shape()), append(e.outputs, whole)
		e.sharded = append(e.sharded, sharded)
	}
	if err := catch(func() (err error) {
		if d.kind == device.CPU {
			e.host, err = graphOnSlices(g)
			return err
		}
		_, own := d.mine()
		e.program, err = d.client.compile(g.Text(pairDonated(inputs, parts)), d.Count(), own)
		return err
	}); err != nil {
		return nil, &ExecutableError{name, Compiling, err}
	}
	return e, nil
}

// pairDonated pairs each donated input with the first unpaired output of the same shape. It returns
// a map from input indices to output indices.
func pairDonated(inputs []Spec, outputs []shapes.Shape) map[int]int {
	pairs := make(map[int]int)
	taken := make([]bool, len(outputs))
	for i, input := range inputs {
		if !input.Donated {
			continue
		}
		for j, output := range outputs {
			if !taken[j] && output.Equal(input.Shape) {
				pairs[i], taken[j] = j, true
				break
			}
		}
	}
	return pairs
}

// Name returns the name given to Compile.
func (e *Executable) Name() string { return e.name }

// Outputs returns the shapes of the buffers that Run returns, in order.
func (e *Executable) Outputs() []shapes.Shape { return e.outputs }

func timesReplicas(part shapes.Shape, count int) shapes.Shape {
	whole := part.Clone()
	whole.Dimensions[0] *= count
	return whole
}

// Run executes it on all replicas and returns its outputs, which the caller finalizes. Input
// i is donated if donate[i] is set; if donate is nil, none is donated. The package documentation
// explains donation. An executable cannot be interrupted.
func (e *Executable) Run(inputs []*Buffer, donate []bool) ([]*Buffer, error) {
	parts, err := e.checkInputs(inputs, donate)
	if err != nil {
		return nil, &ExecutableError{e.name, Running, err}
	}
	_, own := e.device.mine()
	donated := slices.Repeat(donate, own)
	if e.numbered { // the last input of each replica is its index
		numbers, err := e.device.replicaNumbers()
		if err != nil {
			return nil, &ExecutableError{e.name, Running, err}
		}
		all, n := []part(nil), len(e.inputs)
		donated = nil
		for i, number := range *numbers.data.Load() {
			all = append(append(all, parts[i*n:(i+1)*n]...), number)
			if donate != nil {
				donated = append(append(donated, donate...), false)
			}
		}
		parts = all
	}
	// From here on the donated buffers are gone, even after an error.
	for i := range donate {
		if donate[i] {
			inputs[i].data.Store(nil)
		}
	}
	var outputs []*Buffer
	// The device's goroutines inherit the label, so that a profile distinguishes executables.
	pprof.Do(context.Background(), pprof.Labels(ProfileLabel, e.name), func(context.Context) {
		if e.host != nil {
			outputs, err = e.runHost(parts, donate)
		} else {
			outputs, err = e.runProgram(parts, donated, own)
		}
	})
	if err != nil {
		return nil, &ExecutableError{e.name, Running, err}
	}
	return outputs, nil
}

// runProgram runs a compiled graph. own is the number of replicas in this process.
func (e *Executable) runProgram(parts []part, donated []bool, own int) ([]*Buffer, error) {
	var results []part
	if err := e.device.execute(func() (err error) {
		results, err = e.program.run(parts, donated)
		return err
	}); err != nil {
		return nil, err
	}
	outputs := make([]*Buffer, len(e.outputs))
	for i, shape := range e.outputs {
		parts := lists.Make(own, func(j int) part { return results[j*len(outputs)+i] })
		outputs[i] = newBuffer(e.device, parts, shape, e.sharded[i])
	}
	return outputs, nil
}

// checkInputs checks everything that can be checked before the executable starts and returns the
// parts of the inputs, grouped by this process's replicas.
func (e *Executable) checkInputs(inputs []*Buffer, donate []bool) ([]part, error) {
	if e.program == nil && e.host == nil {
		return nil, errors.New("the executable was closed")
	}
	if err := e.device.checkOpen(); err != nil {
		return nil, err
	}
	if len(inputs) != len(e.inputs) {
		return nil, fmt.Errorf("got %d inputs, want %d", len(inputs), len(e.inputs))
	}
	if donate != nil && len(donate) != len(inputs) {
		return nil, fmt.Errorf("got %d donate flags for %d inputs", len(donate), len(inputs))
	}
	count := e.device.Count()
	_, own := e.device.mine()
	buffers := make([]part, own*len(inputs))
	for i, input := range inputs {
		spec := e.inputs[i]
		if input == nil {
			return nil, fmt.Errorf("input %q is nil", spec.Name)
		}
		data := input.data.Load()
		want, sharded := spec.Shape, spec.Sharded && count > 1
		if sharded { // the buffer's shape is that of the whole tensor
			want = timesReplicas(want, count)
		}
		switch {
		case data == nil:
			return nil, fmt.Errorf("input %q: %w", spec.Name, ErrBufferGone)
		case input.device != e.device:
			return nil, fmt.Errorf("input %q is on another device", spec.Name)
		case !input.shape.Equal(want) && !(e.ReadsBFloat16(i) &&
			input.shape.DType == shapes.BFloat16 &&
			slices.Equal(input.shape.Dimensions, want.Dimensions)):
			return nil, fmt.Errorf("input %q has shape %s, want %s", spec.Name, input.shape, want)
		case input.sharded != sharded:
			return nil, fmt.Errorf("input %q: got sharded=%t, want %t",
				spec.Name, input.sharded, spec.Sharded)
		}
		for j, p := range *data {
			buffers[j*len(inputs)+i] = p
		}
	}
	if donate == nil {
		return buffers, nil
	}
	first := make(map[*Buffer]int, len(inputs))
	for i, input := range inputs {
		// The executable would overwrite a buffer that it also reads.
		if j, twice := first[input]; twice && (donate[i] || donate[j]) {
			return nil, fmt.Errorf("inputs %q and %q are the same buffer and cannot be donated",
				e.inputs[j].Name, e.inputs[i].Name)
		}
		first[input] = i
	}
	return buffers, nil
}

// unfreed keeps programs that were closed after their device, or while it hangs: the garbage
// collector would free them, which is no longer possible.
var unfreed sync.Map

// Close frees the executable. It must not be called while Run is in progress. Closing an
// executable again does nothing.
func (e *Executable) Close() error {
	program := e.program
	e.program, e.host = nil, nil
	if program == nil {
		return nil
	}
	if e.device.gone() {
		unfreed.Store(e, program)
		return nil
	}
	return catch(program.close)
}

// Input is a float32 input of a graph, with its elements in row-major order.
type Input struct {
	Spec
	Data []float32
}

// Evaluate compiles a graph, executes it once, and returns its outputs, which must be float32.
func (d *Device) Evaluate(
	name string, inputs []Input, build BuildFunc,
) (values [][]float32, err error) {
	specs := lists.Map(inputs, func(in Input) Spec { return in.Spec })
	e, err := d.Compile(name, specs, build)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	var buffers []*Buffer
	defer func() { err = errors.Join(err, FinalizeAll(buffers...)) }()
	for _, in := range inputs {
		b, err := Upload(d, in.Data, in.Shape.Dimensions...)
		if err != nil {
			return nil, err
		}
		buffers = append(buffers, b)
	}
	out, err := e.Run(buffers, nil)
	if err != nil {
		return nil, err
	}
	buffers = append(buffers, out...)
	for _, b := range out {
		v, err := Download[float32](b)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}
