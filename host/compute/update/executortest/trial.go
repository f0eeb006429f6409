package executortest

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/internal/randprog"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// trial is a program with its inputs and what it must give.
type trial struct {
	c      randprog.Case
	kernel Kernel
	want   map[string][]float32
	exact  bool
	first  map[string][]float32 // what the first run gave
	memory map[string]fenced    // of the call at hand
	from   map[string][]float32 // its inputs, as they were
	to     map[string][]float32
}

// most is the largest element that a smooth program should have. Beyond it, products of
// products multiply errors more than the tolerance allows for, up to infinity; only the
// bits of different runs are compared then. Few programs get there: see the test of
// package randprog.
const most = 1e4

// newTrial asks the oracle. In exact programs every result is correctly rounded, so that
// the oracle has to round as the executor does; in the others the errors of binary32
// are what is measured.
func (s Subject) newTrial(c randprog.Case, k Kernel, exact bool) (*trial, error) {
	oracle := reference.Run
	if exact && !s.Double {
		oracle = reference.Run32
	}
	out, err := oracle(c.Program, c.Inputs)
	if err != nil {
		return nil, fmt.Errorf("the oracle: %w", err)
	}
	x := &trial{c: c, kernel: k, exact: exact, want: map[string][]float32{}}
	for name, v := range out {
		x.want[name] = narrow(v.Floats)
		if !exact && !(largest(x.want[name]) <= most) {
			return &trial{c: c, kernel: k}, nil
		}
	}
	return x, nil
}

func narrow(list []float64) []float32 {
	out := make([]float32, len(list))
	for i, v := range list {
		out[i] = float32(v)
	}
	return out
}

// call makes a call with fresh memory.
func (x *trial) call(inPlace bool) Call {
	x.memory, x.from, x.to = map[string]fenced{}, map[string][]float32{}, map[string][]float32{}
	call := Call{Kernel: x.kernel, Program: x.c.Program, Inputs: map[string][]float32{}, Outputs: map[string][]float32{}}
	for _, in := range x.c.Program.Inputs {
		x.from[in.Name] = narrow(x.c.Inputs[in.Name].Floats)
		x.memory["input "+in.Name] = fence(x.from[in.Name])
		call.Inputs[in.Name] = x.memory["input "+in.Name].data
	}
	for _, o := range x.c.Program.Outputs {
		t := x.c.Program.TypeOf(o.Value)
		if i := x.c.Program.Input(o.Name); inPlace && i >= 0 && x.c.Program.Inputs[i].Type.Equal(t) {
			call.Outputs[o.Name] = call.Inputs[o.Name]
			delete(x.from, o.Name)
			continue
		}
		x.memory["output "+o.Name] = fence(make([]float32, t.Size()))
		call.Outputs[o.Name] = x.memory["output "+o.Name].data
	}
	x.to = call.Outputs
	return call
}

// verify compares the outputs with what they must be, and with the bits of the first
// run; inputs that are not replaced must be what they were, and so must be the memory
// around all slices.
func (x *trial) verify() error {
	for name, want := range x.want {
		allowed := tolerance * largest(want)
		for i, w := range want {
			if g := x.to[name][i]; !same(g, w) && (x.exact || !(math.Abs(float64(g)-float64(w)) <= allowed)) {
				return fmt.Errorf("output %q, element %d is %v (%08x), want %v (%08x)", name, i, g, math.Float32bits(g), w, math.Float32bits(w))
			}
		}
	}
	for name, was := range x.from {
		if i := differ(x.memory["input "+name].data, was); i >= 0 {
			return fmt.Errorf("input %q was written to, at element %d", name, i)
		}
	}
	for name, m := range x.memory {
		if !m.intact() {
			return fmt.Errorf("memory around %s was written to", name)
		}
	}
	if x.first == nil {
		x.first = x.to
	}
	for name, was := range x.first {
		if i := differ(x.to[name], was); i >= 0 {
			return fmt.Errorf("output %q, element %d is %v, and was %v on one goroutine, apart", name, i, x.to[name][i], was[i])
		}
	}
	return nil
}

// differ is the first element in which two lists differ, -1 if there is none. All NaN are
// one.
func differ(a, b []float32) int {
	for i, v := range a {
		if !same(v, b[i]) {
			return i
		}
	}
	return -1
}

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// tolerance bounds the errors of smooth programs, relative to the largest element of an
// output, or to 1 where all are smaller: about 25 operations, each with errors of 6e-8
// of its result and of up to 1e-6 in sums and products of some thousand terms, of
// which the generator's operations multiply some.
const tolerance = 1e-4

// largest is the largest magnitude, at least 1.
func largest(list []float32) float64 {
	size := 1.0
	for _, v := range list {
		size = max(size, math.Abs(float64(v)))
	}
	return size
}

// fenced is a slice between others that nobody may write to.
type fenced struct{ whole, data []float32 }

// margin is the number of elements on each side, more than a vector has.
const margin = 32

// post is what stands there.
const post = float32(-1.2345e-12)

func fence(data []float32) fenced {
	f := fenced{whole: make([]float32, len(data)+2*margin)}
	for i := range f.whole {
		f.whole[i] = post
	}
	f.data = f.whole[margin : margin+len(data) : margin+len(data)]
	copy(f.data, data)
	return f
}

func (f fenced) intact() bool {
	for i := range margin {
		if f.whole[i] != post || f.whole[len(f.whole)-1-i] != post {
			return false
		}
	}
	return true
}
