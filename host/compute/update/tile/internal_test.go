package tile

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
)

// Tiles compute every operation, or refuse it for a reason that is told.
func TestEveryOperationIsComputedOrRefused(t *testing.T) {
	for _, info := range program.Ops() {
		entries := 0
		for _, has := range []bool{rules[info.Op] != nil, notYet[info.Op] != "", neverPossible[info.Op] != ""} {
			if has {
				entries++
			}
		}
		if entries != 1 {
			t.Errorf("%s stands in %d of the tables rules, notYet and impossible", info.Name, entries)
		}
	}
	if len(rules)+len(notYet)+len(neverPossible) != len(program.Ops()) {
		t.Error("there are entries for operations that do not exist")
	}
}

// broken is a kernel of two passes that reads what there is not: in the first pass, or in
// the scalars before.
func broken(t *testing.T, pass bool) *Kernel {
	t.Helper()
	b := program.NewBuilder("update/broken")
	x, s := b.Input("x", program.FloatType(50000)), b.Input("s", program.FloatType())
	b.Output("x", x.Sub(x.SumAll().Mul(s.Neg())))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	k, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	if k.Passes() != 2 {
		t.Fatalf("%d passes", k.Passes())
	}
	if pass {
		k.phases[0][0].a = 1000
	} else {
		k.scalars.ops = append(k.scalars.ops, 1000)
	}
	return k
}

// TestPanicsBecomeErrors: on the caller's goroutine or another one, while others wait for
// the end of a pass, and the runner can be used again.
func TestPanicsBecomeErrors(t *testing.T) {
	good := broken(t, true)
	good.phases[0][0].a = 0
	for _, threads := range []int{1, 2, 5} {
		for _, pass := range []bool{true, false} {
			r := NewRunner(threads)
			call := func(k *Kernel) Call {
				x := make([]float32, 50000)
				return Call{Kernel: k, Inputs: [][]float32{x, {1}}, Outputs: [][]float32{x}}
			}
			for range 3 {
				err := r.Run([]Call{call(good), call(broken(t, pass)), call(good)})
				var caught *guard.PanicError
				if !errors.As(err, &caught) || caught.Executor != "tile" || caught.Program != "update/broken" {
					t.Fatalf("%d goroutines: got %v", threads, err)
				}
			}
			x := make([]float32, 50000)
			x[7] = 2
			if err := r.Run([]Call{{Kernel: good, Inputs: [][]float32{x, {1}}, Outputs: [][]float32{x}}}); err != nil || x[0] != 2 || x[7] != 4 {
				t.Errorf("%d goroutines: after a panic: %v, %v, %v", threads, err, x[0], x[7])
			}
		}
	}
}
