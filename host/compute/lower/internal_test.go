package lower

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/internal/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
)

// fewElements are enough for a trial on the CPU.
const fewElements = 1 << 14

// TestSubjects checks that the trial program of each kind of kernels passes if the device executes
// the bodies of kernels, with rows of any width.
func TestSubjects(t *testing.T) {
	for _, tt := range []struct {
		kind         Kind
		width, block int
		columnFirst  bool // the first input has a number for each row
	}{
		{kind: Quantizers, width: 640}, {kind: Quantizers, width: 77},
		{kind: Rotations, width: 384, block: 128}, {kind: LargeRotations, width: 512, block: 512},
		{kind: Joined, width: 640, block: 128}, {kind: Joined, width: 48},
		{kind: Rotations, width: 384, block: 128, columnFirst: true},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			d := testdevice.Open(t, engine.Options{Precision: device.BFloat16, Kernels: device.BodyKernels})
			b := program.NewBuilder("test/quantizer")
			if tt.columnFirst {
				b.Input("scale", program.FloatType(64, 1))
			}
			y := b.Input("x", program.FloatType(64, tt.width)).Round()
			if tt.block > 0 {
				y = y.Hadamard(tt.block)
			}
			b.Output("value", y)
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			s := subjectOf(p, 64, tt.kind == Joined)
			if s.Kind != tt.kind {
				t.Errorf("it is one of %s", s.Kind)
			}
			trial, err := s.trial(fewElements)
			if err == nil {
				err = d.Try(trial)
			}
			if err != nil {
				t.Fatal(err)
			}
			if p, err = s.Of(64); err != nil {
				t.Fatal(err)
			}
			if got := subjectOf(p, 64, tt.kind == Joined).Kind; got != tt.kind {
				t.Errorf("its trial is of one of %s", got)
			}
		})
	}
}

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
	inputs := []engine.Spec{{Name: "x", Shape: shapes.Make(dtypes.Float32, 4)}}
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
	for op := range gobackendRules {
		if rules[op] == nil {
			t.Errorf("%s has a rule for the Go backend only", op)
		}
	}
}
