package refresh

import (
	"sync"

	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Executor runs a refresh program. Several calls may run at once.
type Executor func(*program.Program, map[string]reference.Tensor) (map[string]reference.Tensor, error)

// run executes a program, and returns a panic as an error.
func (e Executor) run(p *program.Program, in map[string]reference.Tensor) (out map[string]reference.Tensor, err error) {
	defer guard.Catch("refresh", p.Name, &err)
	return e(p, in)
}

// compute executes a refresh program of update t on tensors of binary32. read returns
// the elements of an input, in the slice that it gets or in another one. write gets the
// elements of an output, which are valid until it returns. failed is the error of the program
// itself; nothing is written then.
func (e Executor) compute(p *program.Program, t int, read func(input string, single []float32) ([]float32, error),
	write func(output string, dims []int, values []float32) error) (failed, err error) {
	memory := scratches.Get().(*scratch)
	defer scratches.Put(memory)
	memory.reserve(p)
	in := map[string]reference.Tensor{}
	for _, input := range p.Inputs {
		if input.Name == sdk.InputStep {
			in[input.Name] = reference.Float(float64(t))
			continue
		}
		values, err := read(input.Name, memory.single[:input.Type.Size()])
		if err != nil {
			return nil, err
		}
		in[input.Name] = reference.Floats(memory.widen(values), input.Type.Shape...)
	}
	out, failed := e.run(p, in)
	if failed != nil {
		return failed, nil
	}
	for name, value := range out {
		if err := write(name, value.Type.Shape, memory.narrow(value.Floats)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// scratch holds the inputs and outputs of one refresh while they are converted. It is used
// again for the next one: to allocate memory takes longer than to fill it.
type scratch struct {
	single []float32
	double []float64
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// reserve makes room for the inputs and outputs of a program.
func (b *scratch) reserve(p *program.Program) {
	total, largest := int64(0), int64(0)
	for _, in := range p.Inputs {
		total += in.Type.Size()
		largest = max(largest, in.Type.Size())
	}
	for _, out := range p.Outputs {
		largest = max(largest, p.TypeOf(out.Value).Size())
	}
	if int64(len(b.single)) < largest {
		b.single = make([]float32, largest)
	}
	if int64(cap(b.double)) < total {
		b.double = make([]float64, 0, total)
	}
	b.double = b.double[:0]
}

// widen copies to binary64.
func (b *scratch) widen(single []float32) []float64 {
	at := len(b.double)
	b.double = b.double[:at+len(single)]
	out := b.double[at:]
	for i, x := range single {
		out[i] = float64(x)
	}
	return out
}

// narrow rounds to binary32. Its result is valid until the next call.
func (b *scratch) narrow(v []float64) []float32 {
	out := b.single[:len(v)]
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
