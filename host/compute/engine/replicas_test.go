package engine_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/internal/lists"
)

// acrossReplicas returns the sums of nodes over all replicas.
func acrossReplicas(nodes ...*graph.Node) []*graph.Node {
	return lists.Map(nodes, func(x *graph.Node) *graph.Node { return graph.AllReduce(x, graph.Sum) })
}

// sumsOfRows returns the column sums of a sharded input over all n replicas, n·y + n for the second
// input y, and the column maxima.
func sumsOfRows(g *graph.Graph, in []*graph.Node) []*graph.Node {
	ones := graph.OnesLike(graph.ReduceSum(in[0], 0))
	sums := acrossReplicas(graph.ReduceSum(in[0], 0), ones)
	return []*graph.Node{sums[0], graph.Add(graph.MulScalar(in[1], float64(g.Replicas())),
		sums[1]), graph.AllReduce(graph.ReduceMax(in[0], 0), graph.Maximum)}
}

// TestSumAcross checks that one replica and, on devices that have them, several replicas give the
// same results, except for the number of replicas.
func TestSumAcross(t *testing.T) {
	for _, count := range []int{1, 2, 4} {
		d := testdevice.Open(t, engine.Options{Count: count})
		if d.Count() != count {
			t.Fatalf("the device has %d replicas, want %d", d.Count(), count)
		}
		inputs := []engine.Spec{{Name: "x", Shape: f32(8/count, 3), Sharded: true},
			{Name: "y", Shape: f32(3)}}
		e := compile(t, d, inputs, sumsOfRows)
		data := make([]float32, 24)
		for i := range data {
			data[i] = float32(i)
		}
		x, err := engine.UploadSharded(d, data, true, 8, 3)
		if err != nil {
			t.Fatal(err)
		}
		if !x.Shape().Equal(f32(8, 3)) || !slices.Equal(testdevice.Download[float32](t, x), data) {
			t.Errorf("%d replicas: a buffer of shape %s, of %v", count, x.Shape(),
				testdevice.Download[float32](t, x))
		}
		y := testdevice.Upload(t, d, []float32{1, 2, 3}, 3)
		out := run(t, e, x, y)
		n := float32(count)
		for i, want := range [][]float32{{84, 92, 100}, {2 * n, 3 * n, 4 * n}, {21, 22, 23}} {
			if got := testdevice.Download[float32](t, out[i]); !slices.Equal(got, want) {
				t.Errorf("%d replicas: output %d is %v, want %v", count, i, got, want)
			}
		}
	}
}

// TestReplicasStayEqual runs gradient descent on shards. It compares the result with that of one
// replica, and the values of each replica and their squares with the means over replicas.
func TestReplicasStayEqual(t *testing.T) {
	const steps = 5
	one, several := descend(t, testdevice.Open(t, engine.Options{Count: 1}), steps),
		descend(t, testdevice.Open(t, engine.Options{Count: 4}), steps)
	for i := range one {
		if !(math.Abs(float64(one[i]-several[i])) <= 1e-6) {
			t.Fatalf("element %d is %v with several replicas, %v with one", i, several[i], one[i])
		}
	}
}

func descend(t *testing.T, d *engine.Device, steps int) []float32 {
	t.Helper()
	const rows, width = 16, 3
	n := d.Count()
	step := compile(t, d, []engine.Spec{{Name: "w", Shape: f32(width), Donated: true},
		{Name: "x", Shape: f32(rows/n, width), Sharded: true}},
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			residual := graph.AddScalar(engine.ExactDot(in[1], []int{1}, nil, in[0], []int{0}, nil), -1)
			loss := graph.DivScalar(graph.ReduceSum(graph.Square(residual)), rows)
			gradient := graph.MulScalar(engine.ExactDot(in[1], []int{0}, nil, residual, []int{0}, nil),
				2.0/rows)
			sums := acrossReplicas(gradient, loss)
			return []*graph.Node{graph.Sub(in[0], graph.MulScalar(sums[0], 0.1)), sums[1]}
		})
	data := make([]float32, rows*width)
	for i := range data {
		data[i] = float32(math.Sin(float64(i)))
	}
	x, err := engine.UploadSharded(d, data, true, rows, width)
	if err != nil {
		t.Fatal(err)
	}
	w := testdevice.Upload(t, d, []float32{1, -1, 0.5}, width)
	for range steps {
		out, err := step.Run([]*engine.Buffer{w, x}, []bool{true, false})
		if err != nil {
			t.Fatal(err)
		}
		if !w.Gone() {
			t.Fatal("a donated buffer is not gone")
		}
		w = out[0]
	}
	spread := compile(t, d, []engine.Spec{{Name: "w", Shape: f32(width)}},
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			// Equal values add up to their multiple without rounding, because the numbers of replicas are
			// powers of two.
			sum := acrossReplicas(in[0], graph.Square(in[0]))
			mean := graph.DivScalar(sum[0], float64(g.Replicas()))
			squares := graph.DivScalar(sum[1], float64(g.Replicas()))
			return []*graph.Node{graph.Sub(mean, in[0]), graph.Sub(squares, graph.Square(in[0]))}
		})
	for _, difference := range run(t, spread, w) {
		for i, value := range testdevice.Download[float32](t, difference) {
			if value != 0 {
				t.Errorf("%d replicas: element %d differs among them by %v", n, i, value)
			}
		}
	}
	return testdevice.Download[float32](t, w)
}

func TestReplicasRefuse(t *testing.T) {
	d := testdevice.Open(t, engine.Options{Count: 2})
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(2, 3), Sharded: true},
		{Name: "y", Shape: f32(4, 3)}},
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.ReduceSum(in[0]), graph.ReduceSum(in[1])}
		})
	whole := testdevice.Upload(t, d, make([]float32, 12), 4, 3)
	part, err := engine.UploadSharded(d, make([]float32, 12), true, 4, 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, inputs := range map[string][]*engine.Buffer{`input "x"`: {whole, whole},
		`input "y"`: {part, part}} {
		if _, err := e.Run(inputs, nil); err == nil || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "sharded") {
			t.Errorf("got error %v, want %s and %q in it", err, name, "sharded")
		}
	}
	if _, err := engine.UploadSharded(d, make([]float32, 9), true, 3, 3); err == nil ||
		!strings.Contains(err.Error(), "not a multiple of 2 shards") {
		t.Errorf("3 rows for 2 replicas: got error %v", err)
	}
	if _, err := d.Compile("scalar", []engine.Spec{{Name: "x", Shape: f32(), Sharded: true}},
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Neg(in[0])}
		}); err == nil || !strings.Contains(err.Error(), `input "x" is a scalar, which has no rows`) {
		t.Errorf("a sharded scalar: got error %v", err)
	}
	if info := d.BuildInfo(); info.Replicas != 2 || !strings.HasSuffix(info.String(), " replicas=2") {
		t.Errorf("the build info is %s", info)
	}
}

func TestCount(t *testing.T) {
	if _, err := engine.Open(device.CPU, engine.Options{Count: 2}); err == nil ||
		!strings.Contains(err.Error(), `device "cpu" has one replica, but 2 were requested`) {
		t.Errorf("got error %v", err)
	}
}
