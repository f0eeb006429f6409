// Package testrows executes programs with package cpu, so that tests can check the results.
package testrows

import (
	"maps"
	"math"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// InTurn calls f for 0 to n−1, one after the other.
func InTurn(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// Run executes a program: the part on whole tensors with the reference implementation in float32,
// and the rest row by row with package cpu, whose errors it returns. computed is false if no part
// of the program can be computed row by row.
func Run(p *program.Program, n int, stored map[string]passes.Storage,
	inputs map[string]reference.Tensor) (out map[string]reference.Tensor, computed bool, err error) {
	d, err := passes.DivideRows(p, n, func(passes.Layout) bool { return true })
	if err != nil || d.Rows == nil {
		return nil, false, err
	}
	k, err := cpu.Compile(d.Rows, n, stored)
	if err != nil {
		return nil, false, err
	}
	known := maps.Clone(inputs)
	for name, x := range inputs {
		if stored[name] == passes.BFloat16 {
			known[name] = FromMemory(x.Type, ToMemory(x, passes.BFloat16))
		}
	}
	out = map[string]reference.Tensor{}
	if d.Whole != nil {
		if out, err = reference.Run32(d.Whole, known); err != nil {
			return nil, false, err
		}
		for name, x := range out {
			if p.Input(name) < 0 { // an output may have the name of an input
				known[name] = x
			}
		}
	}
	var in, results []any
	for _, i := range d.Rows.Inputs {
		in = append(in, ToMemory(known[i.Name], stored[i.Name]))
	}
	for _, o := range d.Rows.Outputs {
		results = append(results, Empty(d.Rows.TypeOf(o.Value), stored[o.Name]))
	}
	if err := k.Run(in, results, InTurn); err != nil {
		return nil, false, err
	}
	for i, o := range d.Rows.Outputs {
		out[o.Name] = FromMemory(d.Rows.TypeOf(o.Value), results[i])
	}
	return out, true, nil
}

// ToMemory returns a tensor's elements in the storage type at.
func ToMemory(x reference.Tensor, at passes.Storage) any {
	switch x.Type.DType {
	case program.Bool:
		list := make([]bool, len(x.Ints))
		for i, n := range x.Ints {
			list[i] = n != 0
		}
		return list
	case program.Int:
		list := make([]int32, len(x.Ints))
		for i, n := range x.Ints {
			list[i] = int32(n)
		}
		return list
	case program.Uint:
		list := make([]uint32, len(x.Ints))
		for i, n := range x.Ints {
			list[i] = uint32(n)
		}
		return list
	}
	list := make([]float32, len(x.Floats))
	for i, v := range x.Floats {
		list[i] = float32(v)
	}
	if at != passes.BFloat16 {
		return list
	}
	short := make([]uint16, len(list))
	for i, v := range list {
		short[i] = round(v)
	}
	return short
}

// round rounds x to bfloat16, ties to even.
func round(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16 | 1<<6)
	}
	return uint16((uint64(bits) + 0x7fff + uint64(bits>>16&1)) >> 16)
}

// Empty allocates memory for a tensor of type t in the storage type at.
func Empty(t program.Type, at passes.Storage) any {
	n := int(t.Size())
	switch {
	case t.DType == program.Bool:
		return make([]bool, n)
	case t.DType == program.Int:
		return make([]int32, n)
	case t.DType == program.Uint:
		return make([]uint32, n)
	case at == passes.BFloat16:
		return make([]uint16, n)
	case at == passes.Int8:
		return make([]int8, n)
	}
	return make([]float32, n)
}

// FromMemory is the inverse of ToMemory.
func FromMemory(t program.Type, memory any) reference.Tensor {
	x := reference.Tensor{Type: t}
	switch m := memory.(type) {
	case []float32:
		for _, v := range m {
			x.Floats = append(x.Floats, float64(v))
		}
	case []uint16:
		for _, v := range m {
			x.Floats = append(x.Floats, float64(math.Float32frombits(uint32(v)<<16)))
		}
	case []int8:
		for _, v := range m {
			x.Floats = append(x.Floats, float64(v))
		}
	case []bool:
		for _, v := range m {
			x.Ints = append(x.Ints, map[bool]int64{true: 1}[v])
		}
	case []int32:
		for _, v := range m {
			x.Ints = append(x.Ints, int64(v))
		}
	case []uint32:
		for _, v := range m {
			x.Ints = append(x.Ints, int64(v))
		}
	}
	return x
}
