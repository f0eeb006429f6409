package lower_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestPieces: random programs have the same bits in pieces as in the graph, except for the sign of zeros and what NaN holds. Rows
// are counted in several ways, as programs know nothing of them.
func TestPieces(t *testing.T) {
	seeds := testlevel.Sample[uint64](60, 300, 3000)
	for seed := range seeds {
		c := randprog.New(seed, randprog.Options{Nodes: 10 + int(seed%31), Elements: []int{40, 256, 3000}[seed%3]})
		counts := []int{1}
		for _, in := range c.Program.Inputs {
			for i := range in.Type.Shape {
				if n := (program.Type{Shape: in.Type.Shape[:i+1]}).Size(); !slices.Contains(counts, int(n)) {
					counts = append(counts, int(n))
				}
			}
		}
		for _, count := range counts {
			t.Run(fmt.Sprint(seed, " ", count), func(t *testing.T) { samePieces(t, c.Program, count, c.Inputs) })
		}
	}
}

// samePieces compares a program in pieces with its graph.
func samePieces(t *testing.T, p *program.Program, count int, inputs map[string]reference.Tensor) {
	t.Helper()
	outputs := execute(t, uploadInputs(t, dtypes.Float32, p, inputs), func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		out := lower.Outputs(g, p, in)
		named := lower.InPieces(g, p, count, in)
		for _, o := range p.Outputs {
			out = append(out, named[o.Name])
		}
		return out
	})
	for i, o := range p.Outputs {
		want, got := download(t, p.TypeOf(o.Value), outputs[i]), download(t, p.TypeOf(o.Value), outputs[len(p.Outputs)+i])
		if !slices.Equal(got.Ints, want.Ints) {
			t.Errorf("%s is %v, want %v", o.Name, got.Ints, want.Ints)
		}
		for j, v := range got.Floats {
			if w := want.Floats[j]; v != w && !(math.IsNaN(v) && math.IsNaN(w)) {
				t.Errorf("element %d of %s is %v, want %v", j, o.Name, v, w)
				break
			}
		}
	}
	if t.Failed() {
		t.Log(p)
	}
}
