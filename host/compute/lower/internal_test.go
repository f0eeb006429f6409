package lower

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/sdk/program"
)

// TestCompareCodes checks that at most one value in a hundred may differ.
func TestCompareCodes(t *testing.T) {
	values := func(differ int, by float32) [][]float32 {
		x := slices.Repeat([]float32{1, -2}, 100)
		for i := range differ {
			x[i] *= by
		}
		return [][]float32{x}
	}
	for _, tt := range []struct {
		kernel [][]float32
		want   string
	}{
		{values(0, 1), ""},
		{values(2, 3), ""},
		{values(200, 1.01), ""},
		{values(3, 1.02), "0.015 of the values"},
		{values(3, float32(math.NaN())), "0.015 of the values"},
	} {
		err := compareCodes(tt.kernel, values(0, 1))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	zeros := [][]float32{make([]float32, 4)}
	if err := compareCodes(zeros, zeros); err == nil || !strings.Contains(err.Error(), "only zeros") {
		t.Errorf("zeros: %v", err)
	}
}

// TestNodeErrors checks that an error names a node that does not have the stated type or whose
// lowering panics.
func TestNodeErrors(t *testing.T) {
	cpu, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	inputs := []engine.Spec{{Name: "x", Shape: shapes.Make(shapes.Float32, 4)}}
	for _, n := range []program.Node{
		{Op: program.OpAbs, Args: []program.ID{0}, Type: program.FloatType(5)},
		{Op: program.OpReshape, Args: []program.ID{0}, Type: program.FloatType(3)},
		{Op: program.OpQR, Args: []program.ID{0}, Type: program.FloatType(4)},
	} {
		_, err := cpu.Compile("node", inputs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			p := &program.Program{Name: "bad",
				Inputs: []program.Input{{Name: "x", Type: program.FloatType(4)}}, Nodes: []program.Node{n}}
			l := &lowering{g: g, p: p}
			return []*graph.Node{l.node(1, &n, in)}
		})
		if want := fmt.Sprintf(`program "bad": %%1 = %s: `, n.Op); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", n.Op, err, want)
		}
	}
}

// TestEveryOperationIsLoweredOrRefused checks that every operation either is lowered or is refused
// by all devices with a reason.
func TestEveryOperationIsLoweredOrRefused(t *testing.T) {
	for _, info := range program.Ops() {
		if lowered, refused := rules[info.Op] != nil, unsupported[info.Op] != ""; lowered == refused {
			t.Errorf("%s: lowered %t, refused %t", info.Name, lowered, refused)
		}
	}
	if len(rules)+len(unsupported) != len(program.Ops()) {
		t.Error("there are rules for operations that do not exist")
	}
}
