package engine_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
)

func openCPU(t *testing.T) *engine.Device {
	t.Helper()
	d, err := engine.Open(engine.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func upload[T engine.Element](t *testing.T, d *engine.Device, data []T, dims ...int) *engine.Buffer {
	t.Helper()
	b, err := engine.Upload(d, data, dims...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func download[T engine.Element](t *testing.T, b *engine.Buffer) []T {
	t.Helper()
	data, err := engine.Download[T](b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func compile(t *testing.T, d *engine.Device, inputs []engine.Spec, build engine.BuildFunc) *engine.Executable {
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

func f32(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }

// roundTrip uploads and downloads data of one element type.
func roundTrip[T engine.Element](data []T, dims ...int) func(*testing.T, *engine.Device) {
	return func(t *testing.T, d *engine.Device) {
		b := upload(t, d, data, dims...)
		got := download[T](t, b)
		if len(got) != len(data) {
			t.Fatalf("%d elements came back, want %d", len(got), len(data))
		}
		for i := range data {
			if got[i] != data[i] {
				t.Errorf("element %d is %v, want %v", i, got[i], data[i])
			}
		}
		if err := b.Finalize(); err != nil {
			t.Error(err)
		}
	}
}

func TestUploadDownload(t *testing.T) {
	d := openCPU(t)
	for name, check := range map[string]func(*testing.T, *engine.Device){
		"float32": roundTrip([]float32{1, -2.5, float32(math.Inf(1)), 0, 4, 5}, 2, 3),
		"float64": roundTrip([]float64{math.Pi}, 1),
		"int32":   roundTrip([]int32{-7, math.MaxInt32, math.MinInt32}, 3),
		"int64":   roundTrip([]int64{math.MinInt64, 1}, 1, 2),
		"uint8":   roundTrip([]uint8{0, 255}, 2),
		"bool":    roundTrip([]bool{true, false, true}, 3),
		"scalar":  roundTrip([]float32{42}),
		"empty":   roundTrip([]float32{}, 0, 4),
	} {
		t.Run(name, func(t *testing.T) { check(t, d) })
	}
}

func TestUploadCopies(t *testing.T) {
	d := openCPU(t)
	data := []float32{1, 2}
	b := upload(t, d, data, 2)
	data[0] = 9
	if got := download[float32](t, b); got[0] != 1 {
		t.Errorf("the buffer follows the slice it was uploaded from: got %v", got)
	}
}

func TestUploadRefusesBadDimensions(t *testing.T) {
	d := openCPU(t)
	for _, dims := range [][]int{{2}, {2, 2}, {-3}, {}} {
		if _, err := engine.Upload(d, []float32{1, 2, 3}, dims...); err == nil {
			t.Errorf("3 elements were accepted for dimensions %v", dims)
		}
	}
}

func TestDownloadRefusesWrongSlice(t *testing.T) {
	b := upload(t, openCPU(t), []float32{1, 2, 3}, 3)
	if _, err := engine.Download[float64](b); err == nil {
		t.Error("float32 elements were downloaded as float64")
	}
	if err := engine.DownloadInto(b, make([]float32, 2)); err == nil {
		t.Error("3 elements were downloaded into a slice of 2")
	}
	if _, err := engine.Scalar[float32](b); err == nil {
		t.Error("3 elements were downloaded as a scalar")
	}
}

func TestFinalize(t *testing.T) {
	b := upload(t, openCPU(t), []float32{1}, 1)
	if b.Gone() {
		t.Error("a new buffer is gone")
	}
	if err := engine.FinalizeAll(b, nil, b); err != nil {
		t.Errorf("finalizing twice, and nil: %v", err)
	}
	if _, err := engine.Download[float32](b); !errors.Is(err, engine.ErrBufferGone) {
		t.Errorf("download of a finalized buffer: got error %v, want ErrBufferGone", err)
	}
	if !b.Gone() || !b.Shape().Equal(f32(1)) {
		t.Errorf("gone = %t, shape = %s after Finalize", b.Gone(), b.Shape())
	}
}

func TestRun(t *testing.T) {
	d := openCPU(t)
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(2, 2)}, {Name: "y", Shape: f32(2, 2)}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			table := engine.Constant(g, []float32{10, 20, 30, 40}, 2, 2)
			return []*graph.Node{graph.Add(graph.MatMul(in[0], in[1]), table), graph.ReduceAllSum(in[0]), in[1]}
		})
	x, y := upload(t, d, []float32{1, 2, 3, 4}, 2, 2), upload(t, d, []float32{1, 0, 0, -1}, 2, 2)
	out := run(t, e, x, y)
	for i, want := range [][]float32{{11, 18, 33, 36}, {10}, {1, 0, 0, -1}} {
		got := download[float32](t, out[i])
		for j := range want {
			if got[j] != want[j] {
				t.Errorf("output %d is %v, want %v", i, got, want)
				break
			}
		}
	}
	if !e.Outputs()[0].Equal(f32(2, 2)) || len(e.Inputs()) != 2 || e.Name() != t.Name() {
		t.Errorf("executable describes itself as %q %v -> %v", e.Name(), e.Inputs(), e.Outputs())
	}
}

func TestCompileReportsPanics(t *testing.T) {
	d := openCPU(t)
	x := []engine.Spec{{Name: "x", Shape: f32(2, 3)}}
	var nilNode *graph.Node
	for _, tc := range []struct {
		name   string
		inputs []engine.Spec
		build  engine.BuildFunc
		want   string
	}{
		{"gomlx", x, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.MatMul(in[0], in[0])}
		}, ""},
		{"string", x, func(*graph.Graph, []*graph.Node) []*graph.Node { panic("out of cheese") }, "out of cheese"},
		{"runtime", x, func(_ *graph.Graph, in []*graph.Node) []*graph.Node { return in[5:6] }, "out of range"},
		{"nothing", x, func(*graph.Graph, []*graph.Node) []*graph.Node { return nil }, "no outputs"},
		{"nil", x, func(*graph.Graph, []*graph.Node) []*graph.Node { return []*graph.Node{nilNode} }, "output 0 is nil"},
		{"unnamed", []engine.Spec{{Shape: f32(1)}}, nil, "input 0 has no name"},
		{"twice", append(x, x...), nil, `two inputs are named "x"`},
		{"shapeless", []engine.Spec{{Name: "x"}}, nil, `input "x" has no shape`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := d.Compile("my step", tc.inputs, tc.build)
			var stepErr *engine.StepError
			if !errors.As(err, &stepErr) {
				t.Fatalf("got error %v, want a StepError", err)
			}
			if stepErr.Step != "my step" || stepErr.Phase != engine.Building {
				t.Errorf("step %q, phase %q", stepErr.Step, stepErr.Phase)
			}
			message := err.Error()
			if !strings.HasPrefix(message, `step "my step": building the graph: `) || !strings.Contains(message, tc.want) {
				t.Errorf("message is %q, want %q in it", message, tc.want)
			}
			if strings.Contains(message, ".go:") || strings.Contains(message, "\n") {
				t.Errorf("message has a stack: %q", message)
			}
		})
	}
}

func TestRunRefusesBadInputs(t *testing.T) {
	d, other := openCPU(t), openCPU(t)
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(2)}, {Name: "y", Shape: f32(2)}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node { return []*graph.Node{graph.Add(in[0], in[1])} })
	x, y := upload(t, d, []float32{1, 2}, 2), upload(t, d, []float32{3, 4}, 2)
	gone := upload(t, d, []float32{3, 4}, 2)
	if err := gone.Finalize(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		inputs []*engine.Buffer
		donate []bool
		want   string
	}{
		"count":  {[]*engine.Buffer{x}, nil, "got 1 inputs, want 2"},
		"flags":  {[]*engine.Buffer{x, y}, []bool{true}, "1 donate flags for 2 inputs"},
		"nil":    {[]*engine.Buffer{x, nil}, []bool{true, true}, `input "y" is nil`},
		"shape":  {[]*engine.Buffer{x, upload(t, d, []float32{1, 2}, 1, 2)}, []bool{true, true}, `input "y" has shape`},
		"type":   {[]*engine.Buffer{x, upload(t, d, []int32{1, 2}, 2)}, []bool{true, true}, `input "y" has shape`},
		"device": {[]*engine.Buffer{x, upload(t, other, []float32{1, 2}, 2)}, []bool{true, true}, `input "y" is on another device`},
		"gone":   {[]*engine.Buffer{x, gone}, []bool{true, true}, engine.ErrBufferGone.Error()},
		"twice":  {[]*engine.Buffer{x, x}, []bool{false, true}, `inputs "x" and "y" are one buffer`},
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
	if got := download[float32](t, run(t, e, x, x)[0]); got[0] != 2 || got[1] != 4 {
		t.Errorf("one buffer as both inputs, not donated: x + x = %v", got)
	}
}

func TestDonation(t *testing.T) {
	d := openCPU(t)
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(3)}, {Name: "y", Shape: f32(3)}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(in[0], in[1]), graph.Mul(in[0], in[1])}
		})
	x, y := upload(t, d, []float32{1, 2, 3}, 3), upload(t, d, []float32{4, 5, 6}, 3)
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
	if got := download[float32](t, x); got[0] != 81 || got[1] != 102 || got[2] != 123 {
		t.Errorf("after 20 steps x = %v, want [81 102 123]", got)
	}
	if got := download[float32](t, y); got[0] != 4 || got[1] != 5 || got[2] != 6 {
		t.Errorf("a buffer that was not donated changed to %v", got)
	}
}

func TestClosed(t *testing.T) {
	d := openCPU(t)
	x := upload(t, d, []float32{1}, 1)
	build := func(g *graph.Graph, in []*graph.Node) []*graph.Node { return []*graph.Node{graph.Neg(in[0])} }
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
	if _, err := d.Compile("late", nil, build); err == nil {
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
	for kind, tc := range map[string]struct {
		opts engine.Options
		want string
	}{
		"tpu":      {engine.Options{}, `unknown device "tpu": known are cpu, cuda`},
		engine.CPU: {engine.Options{Threads: -1}, "-1 threads"},
	} {
		if _, err := engine.Open(kind, tc.opts); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Open(%q, %+v): got error %v, want %q in it", kind, tc.opts, err, tc.want)
		}
	}
}

// TestSameBits runs a step with products, reductions and reuse of buffers again and again, with different numbers of
// threads and from several goroutines at once.
func TestSameBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]float32, 96*160)
	for i := range data {
		data[i] = float32(rng.NormFloat64())
	}
	var want []float32
	for _, threads := range []int{0, 1, 2, 3} {
		d, err := engine.Open(engine.CPU, engine.Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		x := upload(t, d, data, 96, 160)
		e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(96, 160)}}, manyBranches(6))
		var group sync.WaitGroup
		results := make([][]float32, 6)
		for i := range results {
			group.Go(func() {
				out, err := e.Run([]*engine.Buffer{x}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				results[i], err = engine.Download[float32](out[0])
				if err != nil {
					t.Error(err)
				}
			})
			if i < 3 {
				group.Wait() // The first runs are alone, the others overlap.
			}
		}
		group.Wait()
		if want == nil {
			want = results[0]
		}
		for _, got := range results {
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("threads %d: element %d is %v, was %v", threads, i, got[i], want[i])
				}
			}
		}
	}
}

// manyBranches builds a step whose graph has n chains of products and reductions that can run in parallel.
func manyBranches(n int) engine.BuildFunc {
	return func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		total := graph.ZerosLike(in[0])
		for i := range n {
			x := graph.MulScalar(in[0], 1/float64(1+i))
			for range 3 {
				gram := graph.DotGeneral(x, []int{0}, nil, in[0], []int{0}, nil)
				scale := graph.Sqrt(graph.AddScalar(graph.ReduceAllMean(graph.Square(gram)), 1e-6))
				x = graph.Tanh(graph.MatMul(x, graph.Div(gram, scale)))
				x = graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMean, -1))
			}
			total = graph.Add(total, x)
		}
		return []*graph.Node{total}
	}
}
