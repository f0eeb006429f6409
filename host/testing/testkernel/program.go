// Package testkernel interprets kernels written by package triton. It is slow but needs no GPU, so
// that tests can compare the results of kernels with those of programs.
//
// It supports only the operations that package triton uses, and it is strict: the types in the text
// must match the operands, every name must be known, and every memory access must be within a
// tensor. Whether the Triton compiler accepts a kernel can only be tested by compiling it; see
// scripts/predict.sh.
package testkernel

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// A Program is a program partitioned and compiled by package triton.
type Program struct {
	passes.Division
	Kernel *triton.Kernel // nil if it has no rows
	Stored map[string]passes.Storage
}

// Rows returns the number of rows of the largest input.
func Rows(p *program.Program) int {
	rows, largest := 1, int64(0)
	for _, in := range p.Inputs {
		if size := in.Type.Size(); size > largest && len(in.Type.Shape) > 0 {
			largest, rows = size, int(size)/in.Type.Shape[len(in.Type.Shape)-1]
		}
	}
	return rows
}

// Compile partitions and compiles a program. Errors are those of package triton.
func Compile(p *program.Program, rows int, stored map[string]passes.Storage) (*Program, error) {
	return compile(p, rows, triton.LargestRow, stored)
}

// CompileLone is like Compile, but allows rows of up to [triton.LargestLoneRow] elements.
func CompileLone(p *program.Program, rows int, stored map[string]passes.Storage) (*Program, error) {
	return compile(p, rows, triton.LargestLoneRow, stored)
}

func compile(p *program.Program, rows, largest int,
	stored map[string]passes.Storage) (*Program, error) {
	d, err := triton.Divide(p, rows)
	if err != nil {
		return nil, err
	}
	out := &Program{Division: d, Stored: stored}
	if d.Rows != nil {
		out.Kernel, err = triton.New(d.Rows, rows, largest, stored)
	}
	return out, err
}

// Run runs the program in float32 and returns its outputs. The reference implementation computes
// the part on whole tensors, with inputs rounded as for the kernel.
func (p *Program) Run(inputs map[string]reference.Tensor) (map[string]reference.Tensor, error) {
	known := maps.Clone(inputs)
	for name, t := range known {
		if p.Stored[name] == passes.BFloat16 {
			data := make([]float64, len(t.Floats))
			for i, x := range t.Floats {
				data[i] = float64(roundBFloat16(float32(x)))
			}
			known[name] = reference.Floats(data, t.Type.Shape...)
		}
	}
	out := map[string]reference.Tensor{}
	if p.Whole != nil {
		var err error
		if out, err = reference.Run32(p.Whole, known); err != nil {
			return nil, err
		}
		for name, t := range out {
			// The program's own outputs may have the names of inputs.
			if strings.HasPrefix(name, passes.NumberPrefix) {
				known[name] = t
			}
		}
	}
	if p.Kernel == nil {
		return out, nil
	}
	var memory []Tensor
	for _, in := range p.Rows.Inputs {
		t, ok := known[in.Name]
		if !ok {
			return nil, fmt.Errorf("there is no input %s", in.Name)
		}
		memory = append(memory, p.memory(in.Name, t))
	}
	for _, o := range p.Rows.Outputs {
		memory = append(memory, p.memory(o.Name, reference.Tensor{Type: p.Rows.TypeOf(o.Value)}))
	}
	if err := Run(p.Kernel.Text, p.Kernel.Grid, memory); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, p.Kernel.Text)
	}
	for i, o := range p.Rows.Outputs {
		out[o.Name] = tensor(memory[len(p.Rows.Inputs)+i], p.Rows.TypeOf(o.Value))
	}
	return out, nil
}

// memory returns a tensor in the kernel's memory format. If its elements are nil, they become
// zeros.
func (p *Program) memory(name string, t reference.Tensor) (m Tensor) {
	for i := range int(t.Type.Size()) {
		var f float32
		var n int64
		if t.Floats != nil {
			f = float32(t.Floats[i])
		}
		if t.Ints != nil {
			n = t.Ints[i]
		}
		switch {
		case t.Type.DType == program.Bool:
			m.Int8 = append(m.Int8, int8(n))
		case t.Type.DType != program.Float:
			m.Int32 = append(m.Int32, int32(n))
		case p.Stored[name] == passes.Int8:
			m.Int8 = append(m.Int8, int8(f))
		case p.Stored[name] == passes.BFloat16:
			m.BFloat16 = append(m.BFloat16, uint16(math.Float32bits(f)>>16))
		default:
			m.Float32 = append(m.Float32, f)
		}
	}
	return m
}

// tensor is the inverse of memory.
func tensor(m Tensor, t program.Type) reference.Tensor {
	out := reference.Tensor{Type: t}
	for _, x := range m.Float32 {
		out.Floats = append(out.Floats, float64(x))
	}
	for _, x := range m.BFloat16 {
		out.Floats = append(out.Floats, float64(math.Float32frombits(uint32(x)<<16)))
	}
	for _, n := range m.Int8 {
		if t.DType == program.Float {
			out.Floats = append(out.Floats, float64(n))
		} else {
			out.Ints = append(out.Ints, int64(n))
		}
	}
	for _, n := range m.Int32 {
		if t.DType == program.Uint {
			out.Ints = append(out.Ints, int64(uint32(n)))
		} else {
			out.Ints = append(out.Ints, int64(n))
		}
	}
	return out
}
