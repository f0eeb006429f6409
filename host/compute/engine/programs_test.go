package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/testing/pjrtrecord"
	"github.com/cage-qat/cage/host/testing/testdevice"
)

// record opens a recording device with the number of replicas in the options.
func record(t *testing.T, opts engine.Options) (*engine.Device, *pjrtrecord.Recorder) {
	t.Helper()
	d, r, err := pjrtrecord.Open(t, max(1, opts.Count), opts)
	if err != nil {
		t.Fatal(err)
	}
	return d, r
}

// descent builds a step that updates w in place; rate before it and x after it are not donated.
func descent(_ *graph.Graph, in []*graph.Node) []*graph.Node {
	rate, w, x := in[0], in[1], in[2]
	y := engine.DotGeneral(x, []int{1}, nil, w, []int{0}, nil)
	loss, dy := graph.ReduceMean(graph.Square(y)), graph.MulScalar(y, 2/float64(y.Shape().Size()))
	gradient := engine.DotGeneral(x, []int{0}, nil, dy, []int{0}, nil)
	sums := acrossReplicas(gradient, loss)
	return []*graph.Node{sums[1], graph.Sub(w, graph.Mul(rate, sums[0])), graph.AddScalar(sums[1], 1)}
}

func descentInputs() []engine.Spec {
	return []engine.Spec{
		{Name: "rate", Shape: f32()},
		{Name: "w", Shape: f32(3, 5), Donated: true},
		{Name: "x", Shape: f32(2, 3), Sharded: true},
	}
}

func TestPrograms(t *testing.T) {
	for _, tc := range []struct {
		name      string
		opts      engine.Options
		have, not []string
	}{
		{"one", engine.Options{}, nil, []string{"num_replicas", "all_reduce", "bf16"}},
		{"four", engine.Options{Count: 4},
			[]string{"stablehlo.num_replicas = 4",
				"replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>"}, []string{"bf16"}},
		{"bfloat16", engine.Options{Precision: device.BFloat16},
			[]string{": (tensor<2x3xbf16>, tensor<3x5xbf16>) -> tensor<2x5xf32>"}, []string{"all_reduce"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, r := record(t, tc.opts)
			compile(t, d, descentInputs(), descent)
			program := r.Programs(t)[0]
			for _, want := range append(tc.have,
				"%w: tensor<3x5xf32> { tf.aliasing_output = 1 : i32 }, %x: tensor<2x3xf32>)") {
				if !strings.Contains(program, want) {
					t.Errorf("the program lacks %q:\n%s", want, program)
				}
			}
			for _, never := range append(tc.not, "custom_call", "infeed", "outfeed", "stablehlo.send") {
				if strings.Contains(program, never) {
					t.Errorf("the program has %q:\n%s", never, program)
				}
			}
			sums := strings.Count(program, `"stablehlo.all_reduce"`)
			if want := min(2, 2*(d.Count()-1)); sums != want {
				t.Errorf("%d sums across the replicas, want %d:\n%s", sums, want, program)
			}
		})
	}
}

// TestReplicasGetTheirBuffers follows buffers through three runs on two replicas, with three
// outputs each. In the first two runs, the second output replaces w.
func TestReplicasGetTheirBuffers(t *testing.T) {
	d, r := record(t, engine.Options{Count: 2})
	e := compile(t, d, descentInputs(), descent)
	rate, w := testdevice.Upload(t, d, []float32{1}),
		testdevice.Upload(t, d, make([]float32, 15), 3, 5)
	x, err := engine.UploadSharded(d, make([]float32, 12), true, 4, 3)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out, err := e.Run([]*engine.Buffer{rate, w, x}, []bool{false, true, false})
		if err != nil {
			t.Fatal(err)
		}
		w = out[1]
	}
	if _, err := e.Run([]*engine.Buffer{rate, w, x}, nil); err != nil || w.Gone() {
		t.Errorf("a buffer that is not donated now: gone is %t, error %v", w.Gone(), err)
	}
	want := []string{
		"upload 0@0", "upload 1@1", "upload 2@0", "upload 3@1", "upload 4@0", "upload 5@1",
		"run 0: 0@0 2@0 4@0 -> 6@0 7@0 8@0; 1@1 3@1 5@1 -> 9@1 10@1 11@1; keep 0 2 3 5",
		"run 0: 0@0 7@0 4@0 -> 12@0 13@0 14@0; 1@1 10@1 5@1 -> 15@1 16@1 17@1; keep 0 2 3 5",
		"run 0: 0@0 13@0 4@0 -> 18@0 19@0 20@0; 1@1 16@1 5@1 -> 21@1 22@1 23@1; keep 0 1 2 3 4 5",
	}
	if diff := cmp.Diff(want, r.Log(t)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestDonatedInputsTakeOutputsInOrder checks that donated inputs alone are paired, each with the
// first free output of its shape.
func TestDonatedInputsTakeOutputsInOrder(t *testing.T) {
	d, r := record(t, engine.Options{})
	specs := []engine.Spec{
		{Name: "a", Shape: f32(2), Donated: true}, {Name: "b", Shape: f32(3), Donated: true},
		{Name: "c", Shape: f32(2)},
		{Name: "d", Shape: f32(2), Donated: true}, {Name: "e", Shape: f32(2), Donated: true},
	}
	compile(t, d, specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Neg(in[2]), graph.Concatenate([]*graph.Node{in[0], in[2]}, 0),
			graph.Add(in[3], in[0])}
	})
	want := "(%a: tensor<2xf32> { tf.aliasing_output = 0 : i32 }, %b: tensor<3xf32>, %c: " +
		"tensor<2xf32>, %d: tensor<2xf32> { tf.aliasing_output = 2 : i32 }, %e: tensor<2xf32>) -> " +
		"(tensor<2xf32>, tensor<4xf32>, tensor<2xf32>)"
	if program := r.Programs(t)[0]; !strings.Contains(program, want) {
		t.Errorf("the program lacks %q:\n%s", want, program)
	}
}

func TestMoreReplicasThanGPUs(t *testing.T) {
	_, _, err := pjrtrecord.Open(t, 2, engine.Options{Count: 3})
	few, ok := errors.AsType[*engine.CountError](err)
	if !ok || *few != (engine.CountError{Kind: device.CUDA, Want: 3, Have: 2}) ||
		!strings.Contains(err.Error(), "3 replicas were requested, but it has 2 GPU(s)") {
		t.Errorf("got error %v", err)
	}
}

// TestFewerReplicasThanGPUs checks that the last GPUs are not used.
func TestFewerReplicasThanGPUs(t *testing.T) {
	d, r, err := pjrtrecord.Open(t, 4, engine.Options{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	testdevice.Upload(t, d, []float32{1})
	if got := r.Log(t); !slices.Equal(got, []string{"upload 0@0", "upload 1@1"}) {
		t.Errorf("uploads are %q", got)
	}
}

// TestMemoryLimit checks the memory limit that a device reports, if it reports one.
func TestMemoryLimit(t *testing.T) {
	d, r := record(t, engine.Options{})
	if bytes, ok := d.MemoryLimit(); ok {
		t.Errorf("a device that does not tell has %d bytes", bytes)
	}
	const most = 105e9
	r.Memory(t, most)
	if bytes, ok := d.MemoryLimit(); !ok || bytes != most {
		t.Errorf("the device has %d bytes (%t), want %d", bytes, ok, int64(most))
	}
	e := compile(t, d, descentInputs(), descent)
	if m, ok := e.Memory(); ok {
		t.Errorf("nothing has compiled the program, and it needs %s", m)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if bytes, ok := d.MemoryLimit(); ok {
		t.Errorf("a closed device has %d bytes", bytes)
	}
}

// TestMemory checks the memory that XLA reports for a program.
func TestMemory(t *testing.T) {
	plugin, _ := pjrtrecord.XLA(t, 1)
	t.Setenv(engine.PluginPathVariable, plugin)
	d, err := engine.Open(device.CUDA, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	const rate, w, x, loss = 4, 60, 24, 4
	m, ok := compile(t, d, descentInputs(), descent).Memory()
	// The outputs also include the pointers of a tuple.
	if !ok || m.Inputs != rate+w+x || m.Outputs < loss+w+loss || m.Aliased != w ||
		m.Total() < rate+w+x+2*loss {
		t.Errorf("the program needs %s (%t)", m, ok)
	}
}
