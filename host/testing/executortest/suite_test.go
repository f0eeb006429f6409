// Package executortest tests that executors compute programs correctly. A single suite runs
// hundreds of random optimizer-like programs on an executor and compares the results with the
// reference implementation (package reference). All executors are adapted to the
// interface [executor].
//
// It tests only what every executor must satisfy: results, memory, goroutines. What a single
// executor guarantees (passes over memory, refusals) is tested next to that executor.
package executortest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// An executor compiles programs and runs them on named tensors.
type executor interface {
	// Compile prepares a program as a kernel. It returns an error that wraps [errRefused] if it does
	// not support the program.
	Compile(p *program.Program) (any, error)
	// Run executes calls on the given number of goroutines. The calls share no memory that one of
	// them writes.
	Run(threads int, calls []call) error
}

// A call is a kernel with a slice for each input and output of its program. An output may
// share its slice with the input of the same name.
type call struct {
	Kernel          any
	Program         *program.Program
	Inputs, Outputs map[string][]float32
}

// errRefused is the error for a valid program that an executor does not support.
var errRefused = errors.New("refused")

// A subject is an executor under test.
type subject struct {
	executor
	// Accepts is the smallest accepted share of each family's random programs. Families that the
	// executor does not support have no entry.
	Accepts map[randprog.Family]float64
	// Double means that the executor computes in float64 and rounds only results to float32.
	Double bool
}

// threadCounts are the numbers of goroutines on which calls are run. Results must not depend on
// them.
var threadCounts = []int{1, 2, 5}

// group is the number of programs that run concurrently.
const group = 8

// testExecutor tests an executor with programs of all families that it supports.
func testExecutor(t *testing.T, s subject) {
	count := testlevel.Choose[uint64](48, 320)
	if testing.Short() {
		count = 16
	}
	for _, family := range randprog.Families {
		least, ok := s.Accepts[family]
		if !ok {
			continue
		}
		for _, exact := range []bool{true, false} {
			name := string(family) + "/smooth"
			if exact {
				name = string(family) + "/exact"
			}
			t.Run(name, func(t *testing.T) {
				s.runFamily(t, randprog.UpdateOptions{Family: family, Exact: exact}, count, least)
			})
		}
	}
}

// runFamily runs count random programs. The test fails if a smaller share than least is accepted.
func (s subject) runFamily(t *testing.T, o randprog.UpdateOptions, count uint64, least float64) {
	accepted := 0
	for first := uint64(0); first < count; first += group {
		var cases []randprog.Case
		for seed := first; seed < min(first+group, count); seed++ {
			cases = append(cases, randprog.NewUpdate(rand.New(rand.NewPCG(seed, 11)), o))
		}
		n, err := s.check(cases, o.Exact)
		if err != nil {
			t.Fatalf("seeds from %d: %v", first, err)
		}
		accepted += n
	}
	share := float64(accepted) / float64(count)
	t.Logf("%d of %d programs are accepted", accepted, count)
	if share < least {
		t.Errorf("%.3f of the programs are accepted, want at least %.3f: the others were not tested",
			share, least)
	}
}

// check compiles the programs and runs the accepted ones concurrently: with separate outputs, with
// outputs in place of inputs, and on several numbers of goroutines. It returns the number of
// accepted programs.
func (s subject) check(cases []randprog.Case, exact bool) (accepted int, err error) {
	var trials []*trial
	for _, c := range cases {
		k, err := s.Compile(c.Program)
		if errors.Is(err, errRefused) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("compiling: %w\n%s", err, c.Program)
		}
		x, err := s.newTrial(c, k, exact)
		if err != nil {
			return 0, err
		}
		trials = append(trials, x)
	}
	for i, threads := range threadCounts {
		var calls []call
		for _, x := range trials {
			calls = append(calls, x.call(i > 0))
		}
		if err := s.Run(threads, calls); err != nil {
			return 0, fmt.Errorf("on %d goroutines: %w", threads, err)
		}
		for _, x := range trials {
			if err := x.verify(); err != nil {
				return 0, fmt.Errorf("on %d goroutines, outputs in place %t: %w\n%s", threads, i > 0, err,
					x.c.Program)
			}
		}
	}
	return len(trials), nil
}

// trial is a program with inputs and expected results.
type trial struct {
	c      randprog.Case
	kernel any
	want   map[string][]float32
	exact  bool
	first  map[string][]float32 // results of the first run
	memory map[string]fenced    // of the current call
	from   map[string][]float32 // its original inputs
	to     map[string][]float32
}

// most is the largest element in smooth programs for which results are compared with the reference.
// Beyond it, repeated products amplify errors by more than the tolerance; then only the bits of
// different runs are compared. Few programs exceed it: see the test of package randprog.
const most = 1e4

// newTrial computes the expected results with the reference implementation. For exact programs,
// whose results are correctly rounded, it uses the executor's precision. For others it uses
// float64, so that the executor's float32 errors are measured.
func (s subject) newTrial(c randprog.Case, k any, exact bool) (*trial, error) {
	run := reference.Run
	if exact && !s.Double {
		run = reference.Run32
	}
	out, err := run(c.Program, c.Inputs)
	if err != nil {
		return nil, fmt.Errorf("running the reference implementation: %w", err)
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

func (x *trial) call(inPlace bool) call {
	x.memory, x.from, x.to = map[string]fenced{}, map[string][]float32{}, map[string][]float32{}
	c := call{Kernel: x.kernel, Program: x.c.Program, Inputs: map[string][]float32{},
		Outputs: map[string][]float32{}}
	for _, in := range x.c.Program.Inputs {
		x.from[in.Name] = narrow(x.c.Inputs[in.Name].Floats)
		x.memory["input "+in.Name] = fence(x.from[in.Name])
		c.Inputs[in.Name] = x.memory["input "+in.Name].data
	}
	for _, o := range x.c.Program.Outputs {
		t := x.c.Program.TypeOf(o.Value)
		if i := x.c.Program.Input(o.Name); inPlace && i >= 0 && x.c.Program.Inputs[i].Type.Equal(t) {
			c.Outputs[o.Name] = c.Inputs[o.Name]
			delete(x.from, o.Name)
			continue
		}
		x.memory["output "+o.Name] = fence(make([]float32, t.Size()))
		c.Outputs[o.Name] = x.memory["output "+o.Name].data
	}
	x.to = c.Outputs
	return c
}

// verify compares the outputs with the expected ones and with the bits of the first run. Inputs
// that are not overwritten and the memory around all slices must be unchanged.
func (x *trial) verify() error {
	for name, want := range x.want {
		allowed := tolerance * largest(want)
		for i, w := range want {
			if g := x.to[name][i]; !same(g, w) &&
				(x.exact || !(math.Abs(float64(g)-float64(w)) <= allowed)) {
				return fmt.Errorf("output %q, element %d is %v (%08x), want %v (%08x)", name, i, g,
					math.Float32bits(g), w, math.Float32bits(w))
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
			return fmt.Errorf("output %q, element %d is %v, but was %v in the first run", name, i,
				x.to[name][i], was[i])
		}
	}
	return nil
}

// differ returns the first index at which two lists differ, or -1 if there is none. All NaNs are
// equal.
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

// tolerance bounds the errors of smooth programs, relative to an output's largest element or 1, if
// that is larger. A program has about 25 operations, each with a relative error of 6e-8, or up to
// 1e-6 for sums of some thousand terms; later operations amplify some of these errors.
const tolerance = 1e-4

// largest returns the largest magnitude in list, but at least 1.
func largest(list []float32) float64 {
	size := 1.0
	for _, v := range list {
		size = max(size, math.Abs(float64(v)))
	}
	return size
}

// fenced is a slice between guard elements that must not be written.
type fenced struct{ whole, data []float32 }

// margin is the number of guard elements on each side. It is larger than a vector.
const margin = 32

// post is the value of the guard elements.
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
