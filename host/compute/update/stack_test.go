package update

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk/program"
)

// product is a program named name that multiplies a square matrix of order n by c and
// by itself; without is one that only scales it.
func product(t *testing.T, name string, n int, c float64) *program.Program {
	return written(t, name, n, func(x program.Value) program.Value { return x.MatMul(x).Scale(c) })
}

func without(t *testing.T, name string, n int) *program.Program {
	return written(t, name, n, func(x program.Value) program.Value { return x.Scale(2) })
}

func written(t *testing.T, name string, n int, f func(x program.Value) program.Value) *program.Program {
	t.Helper()
	b := program.NewBuilder(name)
	b.Output("y", f(b.Input("x", program.FloatType(n, n))))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStacks: what is computed together has products, the same program but for its
// name, and room.
func TestStacks(t *testing.T) {
	large := 1 << 12 // four matrices of this order have mostStacked elements
	programs := []*program.Program{
		product(t, "a", 8, 1), product(t, "b", 8, 2), without(t, "c", 8), product(t, "d", 8, 1), without(t, "e", 8),
		product(t, "f", 8, 1), product(t, "g", 9, 1),
		product(t, "h", large, 1), product(t, "i", large, 1), product(t, "j", large, 1), product(t, "k", large, 1), product(t, "l", large, 1),
		product(t, "m", 2*large, 1), product(t, "n", 2*large, 1),
	}
	deep := written(t, "o", 1, func(x program.Value) program.Value {
		return x.MatMul(x).Reshape(1, 1, 1, 1, 1, 1, 1, 1).Exp().Reshape(1, 1)
	})
	programs = append(programs, deep, deep)
	want := [][]int{{0, 3, 5}, {1}, {2}, {4}, {6}, {7, 8, 9, 10}, {11}, {12}, {13}, {14}, {15}}
	var alone [][]int
	for i := range programs {
		alone = append(alone, []int{i})
	}
	for _, c := range []struct {
		how   Stacking
		onCPU bool
		want  [][]int
	}{{Stacked, true, want}, {ByDevice, false, want}, {ByDevice, true, alone}, {Unstacked, false, alone}} {
		if diff := cmp.Diff(c.want, c.how.stacks(programs, c.onCPU)); diff != "" {
			t.Errorf("%q, on the CPU %v: -want +got:\n%s", c.how, c.onCPU, diff)
		}
	}
}
