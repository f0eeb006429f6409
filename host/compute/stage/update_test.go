package stage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
)

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB) *engine.Device {
	t.Helper()
	dev, err := engine.Open(device.CPU, engine.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// job returns a job whose program maps named tensors of three elements to others; rate is a scalar.
func job(
	t testing.TB, tensor string, reads, donated []string,
	body func(b *program.Builder, in map[string]program.Value),
) stage.Job {
	t.Helper()
	j := stage.Job{Tensor: tensor, Inputs: map[string]string{}, Outputs: map[string]string{},
		Donated: map[string]bool{}}
	b := program.NewBuilder(tensor)
	in := map[string]program.Value{}
	for _, name := range reads {
		in[name], j.Inputs[name] = b.Input(name, program.FloatType(3)), name
	}
	for _, name := range donated {
		j.Donated[name] = true
	}
	in["rate"] = b.Input("rate", program.FloatType())
	body(b, in)
	var err error
	if j.Program, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	for _, o := range j.Program.Outputs {
		if o.Name != "measure" {
			j.Outputs[o.Name] = o.Name
		}
	}
	return j
}

// onlyInGraphs returns v, of three elements, by operations that package cpu refuses.
func onlyInGraphs(v program.Value) program.Value {
	return v.Slice([]int{0}, []int{1}, []int{1}).Concatenate(0, v.Slice([]int{1}, []int{3}, []int{1}))
}

// upload returns tensors of three elements, all of the given values.
func upload(t testing.TB, dev *engine.Device, values map[string]float32) stage.Tensors {
	t.Helper()
	all := stage.Tensors{}
	for name, v := range values {
		b, err := engine.Upload(dev, []float32{v, v, v}, 3)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Finalize() })
		all[name] = b
	}
	return all
}

func value(t testing.TB, b *engine.Buffer) float32 {
	t.Helper()
	v, err := engine.Download[float32](b)
	if err != nil {
		t.Fatal(err)
	}
	return v[0]
}

// TestShared checks that a job that reads a tensor gets the old value if another job replaces it,
// with both jobs on one executor and on two.
func TestShared(t *testing.T) {
	dev := open(t)
	for name, second := range map[string]func(v program.Value) program.Value{
		"cpu":   func(v program.Value) program.Value { return v.Scale(2) },
		"graph": onlyInGraphs,
	} {
		t.Run(name, func(t *testing.T) {
			replaces := job(t, "a", []string{"a", "spent"}, []string{"a", "spent"},
				func(b *program.Builder, in map[string]program.Value) {
					b.Output("a", in["a"].Sub(in["spent"].Mul(in["rate"])))
					b.Output("measure", in["a"].SumAll())
				})
			reads := job(t, "b", []string{"b", "a"}, []string{"b"},
				func(b *program.Builder, in map[string]program.Value) {
					b.Output("b", second(in["a"]).Add(in["b"].Mul(in["rate"])))
				})
			u, err := stage.CompileUpdate(dev, "test", []stage.Job{replaces, reads}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			tensors := upload(t, dev, map[string]float32{"a": 3, "b": 1, "spent": 4})
			old := tensors["a"]
			measures, err := u.Run(tensors, stage.Scalars{"rate": 0.5})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]float32{"cpu": 6.5, "graph": 3.5}[name]
			if a, b := value(t, tensors["a"]), value(t, tensors["b"]); a != 1 || b < want-1e-5 ||
				b > want+1e-5 {
				t.Errorf("a is %v and b %v, want 1 and %v", a, b, want)
			}
			if m := measures["measure"]["a"]; m != 9 {
				t.Errorf("the measure is %v, want 9, of a as it was", m)
			}
			if _, kept := tensors["spent"]; kept || !old.Gone() {
				t.Error("what was donated or replaced is still there")
			}
		})
	}
}

// TestMissing checks that the error of a run names a missing tensor or scalar.
func TestMissing(t *testing.T) {
	dev := open(t)
	for _, form := range []func(v program.Value) program.Value{program.Value.Neg, onlyInGraphs} {
		j := job(t, "a", []string{"a", "g"}, []string{"a"},
			func(b *program.Builder, in map[string]program.Value) {
				b.Output("a", form(in["a"]).Sub(in["g"].Mul(in["rate"])))
			})
		u, err := stage.CompileUpdate(dev, "test", []stage.Job{j}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		if _, err := u.Run(upload(t, dev, map[string]float32{"a": 1}),
			stage.Scalars{"rate": 1}); err == nil || !strings.Contains(err.Error(), "g") {
			t.Errorf("a tensor is missing: %v", err)
		}
		if _, err := u.Run(upload(t, dev, map[string]float32{"a": 1, "g": 1}), nil); err == nil ||
			!strings.Contains(err.Error(), "the scalar rate is missing") {
			t.Errorf("a scalar is missing: %v", err)
		}
	}
}

// TestOrder checks that outputs that replace donated inputs are in the order of these inputs.
func TestOrder(t *testing.T) {
	shape := shapes.Make(shapes.Float32)
	stage := stage.Stage{Name: "order", Inputs: []engine.Spec{
		{Name: "c", Shape: shape, Donated: true}, {Name: "b", Shape: shape},
		{Name: "a", Shape: shape, Donated: true}, {Name: "d", Shape: shape, Donated: true},
	}, Build: func(in stage.Nodes) stage.Nodes {
		return stage.Nodes{"a": graph.Neg(in["a"]), "b": graph.Neg(in["b"]), "c": graph.Neg(in["c"]),
			"x": graph.Neg(in["d"])}
	}}
	e, err := stage.Compile(testdevice.OpenCPU(t, engine.Options{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var got []string
	for _, spec := range e.OutputSpecs() {
		got = append(got, spec.Name)
	}
	if want := []string{"c", "a", "b", "x"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// One step of gradient descent. The job names the tensors that its program reads and writes.
func Example() {
	dev, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	b := program.NewBuilder("descent")
	x, g := b.Input("x", program.FloatType(2)), b.Input("gradient", program.FloatType(2))
	b.Output("x", x.Sub(g.Mul(b.Input("rate", program.FloatType()))))
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	u, err := stage.CompileUpdate(dev, "update", []stage.Job{{
		Tensor: "w", Program: p,
		Inputs: map[string]string{"x": program.KindParam.Of("w"),
			"gradient": program.KindGradient.Of("w")},
		Outputs: map[string]string{"x": program.KindParam.Of("w")},
		Donated: map[string]bool{"x": true, "gradient": true},
	}}, nil)
	if err != nil {
		panic(err)
	}
	defer u.Close()
	t := stage.Tensors{}
	for name, values := range map[string][]float32{program.KindParam.Of("w"): {1, 2},
		program.KindGradient.Of("w"): {10, -10}} {
		if t[name], err = engine.Upload(dev, values, 2); err != nil {
			panic(err)
		}
	}
	if _, err := u.Run(t, stage.Scalars{"rate": 0.1}); err != nil {
		panic(err)
	}
	w, err := engine.Download[float32](t[program.KindParam.Of("w")])
	fmt.Println(w, err)
	// Output: [0 3] <nil>
}
