// Package executortest tests that executors compute what programs mean. One suite tests
// all of them: it runs hundreds of random programs like those of optimizers and compares
// the results with the oracle (package reference). To be tested, an executor needs an
// [Executor] of two methods; see the tests of this package, which cover all executors.
//
// Only what every executor must do belongs here: results, memory, goroutines. What one
// executor alone promises (passes over memory, what it refuses) is tested beside that
// executor.
package executortest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/internal/randprog"
	"github.com/cage-qat/cage/sdk/program"
)

// An Executor compiles programs and runs them on tensors by name.
type Executor interface {
	// Compile prepares a program, or refuses it with an error that is [ErrRefused].
	Compile(p *program.Program) (Kernel, error)
	// Run executes calls on the given number of goroutines. None of the calls writes what
	// another one reads or writes.
	Run(threads int, calls []Call) error
}

// A Kernel is a program compiled by an executor.
type Kernel any

// A Call is a kernel with a slice for each input and output of its program. An output may
// share its slice with the input of the same name.
type Call struct {
	Kernel          Kernel
	Program         *program.Program
	Inputs, Outputs map[string][]float32
}

// ErrRefused is the error of an executor that does not take a program, although the
// program is valid.
var ErrRefused = errors.New("refused")

// A Subject is an executor to be tested, with what it promises.
type Subject struct {
	Executor
	// Accepts is the smallest share of the random programs of each family that it must
	// accept; families that it is not meant for have no entry.
	Accepts map[randprog.Family]float64
	// Double says that it computes in binary64 and only rounds its results to binary32.
	Double bool
}

// goroutines are the numbers with which calls run: the bits must not depend on them.
var goroutines = []int{1, 2, 5}

// group is the number of programs that run at once.
const group = 8

// Run tests a subject with programs of all families that it is meant for.
func Run(t *testing.T, s Subject) {
	count := effort.Choose[uint64](48, 320)
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

// runFamily runs count programs and fails if the subject accepts a smaller share than least.
func (s Subject) runFamily(t *testing.T, o randprog.UpdateOptions, count uint64, least float64) {
	accepted := 0
	for first := uint64(0); first < count; first += group {
		var cases []randprog.Case
		for seed := first; seed < min(first+group, count); seed++ {
			cases = append(cases, randprog.NewUpdate(rand.New(rand.NewPCG(seed, 11)), o))
		}
		n, err := s.Check(cases, o.Exact)
		if err != nil {
			t.Fatalf("seeds from %d: %v", first, err)
		}
		accepted += n
	}
	share := float64(accepted) / float64(count)
	t.Logf("%d of %d programs are accepted", accepted, count)
	if share < least {
		t.Errorf("%.3f of the programs are accepted, want at least %.3f: the others were not tested", share, least)
	}
}

// Check compiles the programs and runs those that are accepted: with separate outputs and
// with outputs in place of inputs, on several numbers of goroutines, all at once. It
// returns how many were accepted.
func (s Subject) Check(cases []randprog.Case, exact bool) (accepted int, err error) {
	var trials []*trial
	for _, c := range cases {
		k, err := s.Compile(c.Program)
		if errors.Is(err, ErrRefused) {
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
	for i, threads := range goroutines {
		var calls []Call
		for _, x := range trials {
			calls = append(calls, x.call(i > 0))
		}
		if err := s.Run(threads, calls); err != nil {
			return 0, fmt.Errorf("on %d goroutines: %w", threads, err)
		}
		for _, x := range trials {
			if err := x.verify(); err != nil {
				return 0, fmt.Errorf("on %d goroutines, outputs in place %t: %w\n%s", threads, i > 0, err, x.c.Program)
			}
		}
	}
	return len(trials), nil
}
