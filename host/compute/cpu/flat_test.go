package cpu_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/passes"
	tensorshapes "github.com/cage-qat/cage/host/compute/shapes"
	_ "github.com/cage-qat/cage/host/testing/testdevice" // graphs on the CPU
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
)

func openCPU(t testing.TB) *engine.Device {
	dev, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// onDevice runs the program as a graph.
func onDevice(
	t testing.TB, dev *engine.Device, p *program.Program, inputs [][]float32,
) [][]float32 {
	t.Helper()
	var specs []engine.Spec
	var buffers []*engine.Buffer
	for i, in := range p.Inputs {
		specs = append(specs,
			engine.Spec{Name: in.Name, Shape: tensorshapes.Make(tensorshapes.Float32, in.Type.Shape...)})
		b, err := engine.Upload(dev, inputs[i], in.Type.Shape...)
		if err != nil {
			t.Fatal(err)
		}
		buffers = append(buffers, b)
	}
	exec, err := dev.Compile(p.Name, specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return lower.Outputs(g, p, in)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Close()
	results, err := exec.Run(buffers, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float32
	for _, b := range results {
		data, err := engine.Download[float32](b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data)
	}
	return out
}

func compile(t testing.TB, p *program.Program) *cpu.Pass {
	t.Helper()
	k, err := cpu.CompileFlat(p, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	return k
}

// inTiles runs a program. If inPlace is set, outputs overwrite the inputs of the same name.
func inTiles(
	t testing.TB, k *cpu.Pass, threads int, inputs [][]float32, inPlace bool,
) [][]float32 {
	t.Helper()
	p := k.Program()
	call := cpu.Call{Pass: k}
	for _, in := range inputs {
		call.Inputs = append(call.Inputs, slices.Clone(in))
	}
	var outputs [][]float32
	for _, o := range p.Outputs {
		out := make([]float32, p.TypeOf(o.Value).Size())
		if i := p.Input(o.Name); inPlace && i >= 0 && len(inputs[i]) == len(out) {
			out = call.Inputs[i].([]float32)
		}
		outputs, call.Outputs = append(outputs, out), append(call.Outputs, out)
	}
	if err := cpu.Run([]cpu.Call{call}, cpu.Goroutines(threads)); err != nil {
		t.Fatal(err)
	}
	return outputs
}

// same compares bits. All NaN are equal.
func same(t *testing.T, what string, p *program.Program, got, want [][]float32) {
	t.Helper()
	for o := range want {
		for i, w := range want[o] {
			g := got[o][i]
			if math.Float32bits(g) != math.Float32bits(w) && !(g != g && w != w) {
				t.Fatalf("%s: output %q, element %d is %v (%08x), want %v (%08x)\n%s", what, p.Outputs[o].Name,
					i, g, math.Float32bits(g), w, math.Float32bits(w), p)
			}
		}
	}
}

// TestFlatRandomPrograms checks that random programs give the bits of a graph, with separate
// outputs and in place, for one goroutine and three.
func TestFlatRandomPrograms(t *testing.T) {
	dev := openCPU(t)
	for seed := range testlevel.Choose[uint64](100, 400) {
		shape := shapes[seed%uint64(len(shapes))]
		p := randomProgram(seed, shape)
		rng := rand.New(rand.NewPCG(seed, 7))
		var inputs [][]float32
		for _, in := range p.Inputs {
			inputs = append(inputs, numbers(rng, int(in.Type.Size()), seed%3 > 0))
		}
		k := compile(t, p)
		want := onDevice(t, dev, p, inputs)
		same(t, "apart", p, inTiles(t, k, 1, inputs, false), want)
		same(t, "in place", p, inTiles(t, k, 3, inputs, true), want)
	}
}

// TestRotation compares rotations among elementwise operations, also of equal elements, with a
// graph.
func TestRotation(t *testing.T) {
	dev := openCPU(t)
	for _, block := range []int{2, 16, 128, 2048, 4096} {
		b := program.NewBuilder("rotation")
		x, s := b.Input("x", program.FloatType(3, 2*block)), b.Input("s", program.FloatType())
		b.Output("x", x.Mul(s).Hadamard(block).Sub(s.Broadcast([]int{3, 2 * block}, nil).Hadamard(block)))
		b.Output("sum", x.Hadamard(block).SumAll())
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		inputs := [][]float32{numbers(rand.New(rand.NewPCG(uint64(block), 8)), 6*block, false), {1.5}}
		k := compile(t, p)
		want := onDevice(t, dev, p, inputs)
		got := inTiles(t, k, 1, inputs, false)
		for o, list := range want {
			for i, w := range list {
				if !(math.Abs(float64(got[o][i]-w)) <= 1e-6*float64(block)) {
					t.Fatalf("blocks of %d elements: output %d, element %d is %v, want %v", block, o, i,
						got[o][i], w)
				}
			}
		}
		same(t, "in place", p, inTiles(t, k, 3, inputs, true), got)
	}
}

func TestRefused(t *testing.T) {
	type value = program.Value
	cases := map[string]func(b *program.Builder, x, y value) value{
		"transpose": func(b *program.Builder, x, y value) value { return x.Transpose(1, 0) },
		"table": func(b *program.Builder, x, y value) value {
			return x.Add(b.Table([]float64{1, 2}, 1, 2))
		},
		"mixed folds": func(b *program.Builder, x, y value) value { return x.ReduceMax(0).SumAll() },
		"a slice": func(b *program.Builder, x, y value) value {
			return x.Slice([]int{0, 0}, []int{3, 1}, []int{1, 1})
		},
		"small fill": func(b *program.Builder, x, y value) value {
			return x.SumAll().Broadcast([]int{2}, nil)
		},
		"partial fold": func(b *program.Builder, x, y value) value { return x.ReduceSum(0) },
		"another size": func(b *program.Builder, x, y value) value {
			return x.SumAll().Broadcast([]int{5}, nil)
		},
	}
	for name, f := range cases {
		b := program.NewBuilder("refused")
		x, y := b.Input("x", program.FloatType(3, 2)), b.Input("y", program.FloatType(3, 2))
		b.Output("z", f(b, x, y))
		p, err := b.Build()
		if err != nil {
			t.Fatal(name, err)
		}
		_, err = cpu.CompileFlat(p, nil)
		var refused *passes.Refusal
		if !errors.As(err, &refused) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// adam returns an update of AdamW, with the decoupled correction if correct is set.
func adam(correct bool, shape ...int) *program.Program {
	b := program.NewBuilder("adam")
	tensor, scalar := program.FloatType(shape...), program.FloatType()
	x, g, q := b.Input("x", tensor), b.Input("g", tensor), b.Input("q", tensor)
	m, v := b.Input("m", tensor), b.Input("v", tensor)
	rate, lambda, clip, step := b.Input("rate", scalar), b.Input("lambda", scalar),
		b.Input("clip", scalar), b.Input("step", scalar)
	g = g.Mul(clip)
	m = m.Scale(0.9).Add(g.Scale(0.1))
	v = v.Scale(0.95).Add(g.Square().Scale(0.05))
	c1, c2 := step.Scale(-0.1).Expm1().Neg(), step.Scale(-0.05).Expm1().Neg()
	u := m.Div(v.Sqrt().Mul(c1.Div(c2.Sqrt())).Add(c1.Scale(1e-8)))
	keep := b.Const(1).Sub(rate.Scale(0.1))
	y := x.Mul(keep).Sub(u.Mul(rate))
	if correct {
		e := x.Sub(q)
		e = e.Square().ReduceSum(len(shape)-1).SumAll().IsFinite().Select(e, b.Const(0))
		y = y.Sub(e.Mul(rate.Mul(lambda).Mul(keep)))
	}
	b.Output("x", y)
	b.Output("m", m)
	b.Output("v", v)
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	return p
}

// callOf returns a call with new memory. Outputs share the memory of inputs of the same name.
func callOf(k *cpu.Pass) cpu.Call {
	rng := rand.New(rand.NewPCG(1, 1))
	p := k.Program()
	c := cpu.Call{Pass: k}
	for _, in := range p.Inputs {
		data := numbers(rng, int(in.Type.Size()), false)
		for i := range data {
			data[i] = max(data[i], -data[i])*0.01 + 0.001
		}
		c.Inputs = append(c.Inputs, data)
	}
	for _, o := range p.Outputs {
		if i := p.Input(o.Name); i >= 0 {
			c.Outputs = append(c.Outputs, c.Inputs[i])
			continue
		}
		c.Outputs = append(c.Outputs, make([]float32, p.TypeOf(o.Value).Size()))
	}
	return c
}

// BenchmarkAdam uses one goroutine. The small tensors stay in the first-level cache.
func BenchmarkAdam(b *testing.B) {
	for _, correct := range []bool{false, true} {
		for _, n := range []int{2048, 1 << 18, 1 << 22} {
			b.Run(fmt.Sprintf("correct=%v/n=%d", correct, n), func(b *testing.B) {
				k := compile(b, adam(correct, n/64, 64))
				calls, one := []cpu.Call{callOf(k)}, cpu.Goroutines(1)
				b.SetBytes(int64(4 * n))
				for b.Loop() {
					if err := cpu.Run(calls, one); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
