package engine_test

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/testdevice"
)

func open(t *testing.T) *engine.Device {
	t.Helper()
	return testdevice.Open(t, engine.Options{})
}

func compile(
	t *testing.T, d *engine.Device, inputs []engine.Spec, build engine.BuildFunc,
) *engine.Executable {
	t.Helper()
	e, err := d.Compile(t.Name(), inputs, build)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func run(t *testing.T, e *engine.Executable, inputs ...*engine.Buffer) []*engine.Buffer {
	t.Helper()
	outputs, err := e.Run(inputs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return outputs
}

func f32(dims ...int) shapes.Shape { return shapes.Make(shapes.Float32, dims...) }

func TestRun(t *testing.T) {
	d := open(t)
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(2, 2)}, {Name: "y", Shape: f32(2, 2)}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			table := graph.Constant(g, []float32{10, 20, 30, 40}, 2, 2)
			product := engine.ExactDot(in[0], []int{1}, nil, in[1], []int{0}, nil)
			return []*graph.Node{graph.Add(product, table), graph.ReduceSum(in[0]), in[1]}
		})
	x, y := testdevice.Upload(t, d, []float32{1, 2, 3, 4}, 2, 2),
		testdevice.Upload(t, d, []float32{1, 0, 0, -1}, 2, 2)
	out := run(t, e, x, y)
	for i, want := range [][]float32{{11, 18, 33, 36}, {10}, {1, 0, 0, -1}} {
		got := testdevice.Download[float32](t, out[i])
		for j := range want {
			if got[j] != want[j] {
				t.Errorf("output %d is %v, want %v", i, got, want)
				break
			}
		}
	}
	if !e.Outputs()[0].Equal(f32(2, 2)) || e.Name() != t.Name() {
		t.Errorf("executable describes itself as %q, with outputs %v", e.Name(), e.Outputs())
	}
}

func TestCompileReportsPanics(t *testing.T) {
	d := open(t)
	x := []engine.Spec{{Name: "x", Shape: f32(2, 3)}}
	var nilNode *graph.Node
	for _, tc := range []struct {
		name   string
		inputs []engine.Spec
		build  engine.BuildFunc
		want   string
	}{
		{"shapes", x, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(in[0], graph.Reshape(in[0], 6))}
		}, ""},
		{"string", x, func(*graph.Graph, []*graph.Node) []*graph.Node { panic("out of cheese") },
			"out of cheese"},
		{"runtime", x, func(_ *graph.Graph, in []*graph.Node) []*graph.Node { return in[5:6] },
			"out of range"},
		{"nothing", x, func(*graph.Graph, []*graph.Node) []*graph.Node { return nil }, "got outputs []"},
		{"nil", x, func(*graph.Graph, []*graph.Node) []*graph.Node { return []*graph.Node{nilNode} },
			"got outputs [<nil>]"},
		{"twice", append(x, x...), nil, `parameter with name "x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := d.Compile("my step", tc.inputs, tc.build)
			var failure *engine.ExecutableError
			if !errors.As(err, &failure) {
				t.Fatalf("got error %v, want an ExecutableError", err)
			}
			if failure.Name != "my step" || failure.Phase != engine.Building {
				t.Errorf("executable %q, phase %q", failure.Name, failure.Phase)
			}
			message := err.Error()
			if !strings.HasPrefix(message, `executable "my step": building the graph: `) ||
				!strings.Contains(message, tc.want) {
				t.Errorf("message is %q, want %q in it", message, tc.want)
			}
			if strings.Contains(message, ".go:") || strings.Contains(message, "\n") {
				t.Errorf("message has a stack: %q", message)
			}
		})
	}
}

func TestRunRefusesBadInputs(t *testing.T) {
	d, other := open(t), open(t)
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(2)}, {Name: "y", Shape: f32(2)}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(in[0], in[1])}
		})
	x, y := testdevice.Upload(t, d, []float32{1, 2}, 2), testdevice.Upload(t, d, []float32{3, 4}, 2)
	gone := testdevice.Upload(t, d, []float32{3, 4}, 2)
	if err := gone.Finalize(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		inputs []*engine.Buffer
		donate []bool
		want   string
	}{
		"count": {[]*engine.Buffer{x}, nil, "got 1 inputs, want 2"},
		"flags": {[]*engine.Buffer{x, y}, []bool{true}, "1 donate flags for 2 inputs"},
		"nil":   {[]*engine.Buffer{x, nil}, []bool{true, true}, `input "y" is nil`},
		"shape": {[]*engine.Buffer{x, testdevice.Upload(t, d, []float32{1, 2}, 1, 2)},
			[]bool{true, true}, `input "y" has shape`},
		"type": {[]*engine.Buffer{x, testdevice.Upload(t, d, []int32{1, 2}, 2)}, []bool{true, true},
			`input "y" has shape`},
		"device": {[]*engine.Buffer{x, testdevice.Upload(t, other, []float32{1, 2}, 2)},
			[]bool{true, true}, `input "y" is on another device`},
		"gone":  {[]*engine.Buffer{x, gone}, []bool{true, true}, engine.ErrBufferGone.Error()},
		"twice": {[]*engine.Buffer{x, x}, []bool{false, true}, `inputs "x" and "y" are the same buffer`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.Run(tc.inputs, tc.donate)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q in it", err, tc.want)
			}
			if x.Gone() || y.Gone() {
				t.Error("a refused run took its donated inputs")
			}
		})
	}
	if got := testdevice.Download[float32](t, run(t, e, x, x)[0]); got[0] != 2 || got[1] != 4 {
		t.Errorf("one buffer as both inputs, not donated: x + x = %v", got)
	}
}

func TestDonation(t *testing.T) {
	d := open(t)
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(3)}, {Name: "y", Shape: f32(3)}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(in[0], in[1]), graph.Mul(in[0], in[1])}
		})
	x, y := testdevice.Upload(t, d, []float32{1, 2, 3}, 3),
		testdevice.Upload(t, d, []float32{4, 5, 6}, 3)
	for range 20 { // The sum replaces x again and again: the memory of a donated buffer is reused.
		out, err := e.Run([]*engine.Buffer{x, y}, []bool{true, false})
		if err != nil {
			t.Fatal(err)
		}
		if !x.Gone() {
			t.Fatal("a donated buffer is not gone")
		}
		if err := out[1].Finalize(); err != nil {
			t.Fatal(err)
		}
		x = out[0]
	}
	if got := testdevice.Download[float32](t, x); got[0] != 81 || got[1] != 102 || got[2] != 123 {
		t.Errorf("after 20 steps x = %v, want [81 102 123]", got)
	}
	if got := testdevice.Download[float32](t, y); got[0] != 4 || got[1] != 5 || got[2] != 6 {
		t.Errorf("a buffer that was not donated changed to %v", got)
	}
}

func TestClosed(t *testing.T) {
	d := open(t)
	x := testdevice.Upload(t, d, []float32{1}, 1)
	build := func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Neg(in[0])}
	}
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(1)}}, build)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Run([]*engine.Buffer{x}, nil); err == nil {
		t.Error("a closed step ran")
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := engine.Upload(d, []float32{1}, 1); err == nil {
		t.Error("a closed device took an upload")
	}
	if _, err := d.Compile("late", []engine.Spec{{Name: "x", Shape: f32(1)}}, build); err == nil {
		t.Error("a closed device compiled a step")
	}
	if _, err := engine.Download[float32](x); err == nil {
		t.Error("a closed device gave a download")
	}
	if err := x.Finalize(); err != nil {
		t.Errorf("finalizing a buffer after its device: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := engine.Open("tpu", engine.Options{}); err == nil ||
		!strings.Contains(err.Error(), `unknown device "tpu": want one of cpu, cuda`) {
		t.Errorf("an unknown kind: got error %v", err)
	}
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
