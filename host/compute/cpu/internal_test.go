package cpu

import (
	"errors"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/recovered"
	"github.com/cage-qat/cage/sdk/program"
)

// TestEveryOperation checks that every operation is either computed or refused with a reason.
func TestEveryOperation(t *testing.T) {
	computed := Operations()
	for _, info := range program.Ops() {
		if slices.Contains(computed, info.Op) == (passes.UnsupportedByRows[info.Op] != "") {
			t.Errorf("%s is both computed and refused, or neither", info.Name)
		}
	}
	if len(computed)+len(passes.UnsupportedByRows) != len(program.Ops()) {
		t.Error("there are entries for operations that do not exist")
	}
}

// broken returns a pass of two sweeps that reads a value that does not exist: in the first sweep
// if sweep is set, otherwise in the scalars computed before it.
func broken(t *testing.T, sweep bool) *Pass {
	t.Helper()
	b := program.NewBuilder("update/broken")
	x, s := b.Input("x", program.FloatType(50000)), b.Input("s", program.FloatType())
	b.Output("x", x.Sub(x.SumAll().Mul(s.Neg())))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	k, err := CompileFlat(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if k.Sweeps() != 2 {
		t.Fatalf("%d sweeps", k.Sweeps())
	}
	if sweep {
		k.sweeps[0].code[0].in = []operand{{id: 1000}}
	} else {
		k.scalars.add(scalar{kind: scalarOp, op: loops.Neg, args: [3]int{1000}})
	}
	return k
}

// TestPanicsBecomeErrors checks that a panic becomes an error, on the caller's goroutine or another
// one, while others wait for the end of a sweep, and that other passes can run again.
func TestPanicsBecomeErrors(t *testing.T) {
	good := broken(t, true)
	good.sweeps[0].code[0].in = []operand{{id: 0, repeat: 1}}
	for _, threads := range []int{1, 2, 5} {
		for _, sweep := range []bool{true, false} {
			parallel := Goroutines(threads)
			call := func(k *Pass) Call {
				x := make([]float32, 50000)
				return Call{Pass: k, Inputs: []any{x, []float32{1}}, Outputs: []any{x}}
			}
			for range 3 {
				err := Run([]Call{call(good), call(broken(t, sweep)), call(good)}, parallel)
				var caught *recovered.PanicError
				if !errors.As(err, &caught) || caught.Executor != "cpu" || caught.Program != "update/broken" {
					t.Fatalf("%d goroutines: got %v", threads, err)
				}
			}
			x := make([]float32, 50000)
			x[7] = 2
			if err := Run([]Call{{Pass: good, Inputs: []any{x, []float32{1}}, Outputs: []any{x}}},
				parallel); err != nil || x[0] != 2 || x[7] != 4 {
				t.Errorf("%d goroutines: after a panic: %v, %v, %v", threads, err, x[0], x[7])
			}
		}
	}
}
