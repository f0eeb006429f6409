package matrix

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
)

// TestPanicsBecomeErrors: on the caller's goroutine or another one; other calls are
// executed, and the runner can be used again.
func TestPanicsBecomeErrors(t *testing.T) {
	compile := func() *Kernel {
		b := program.NewBuilder("update/broken")
		x := b.Input("x", program.FloatType(3, 3))
		b.Output("x", x.MatMul(x).Scale(2))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		k, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	good, bad := compile(), compile()
	bad.steps[0].product.a.rows = 1000
	call := func(k *Kernel) Call {
		x := []float32{1, 0, 0, 0, 2, 0, 0, 0, 3}
		return Call{Kernel: k, Inputs: [][]float32{x}, Outputs: [][]float32{x}}
	}
	for _, threads := range []int{1, 2, 5} {
		r := NewRunner(threads)
		for range 3 {
			calls := []Call{call(good), call(bad), call(good), call(bad), call(good)}
			err := r.Run(calls)
			var caught *guard.PanicError
			if !errors.As(err, &caught) || caught.Executor != "matrix" || caught.Program != "update/broken" {
				t.Fatalf("%d goroutines: got %v", threads, err)
			}
			for _, i := range []int{0, 2, 4} {
				if got := calls[i].Outputs[0][8]; got != 18 {
					t.Errorf("%d goroutines: call %d gives %v, want 18", threads, i, got)
				}
			}
		}
	}
}
