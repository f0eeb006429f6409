package cpu_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/sdk/program"
)

// build returns a program over tensors x and y and a scalar s.
func build(
	t testing.TB, shape []int, body func(b *program.Builder, x, y, s program.Value),
) *program.Program {
	t.Helper()
	b := program.NewBuilder("test")
	x, y := b.Input("x", program.FloatType(shape...)), b.Input("y", program.FloatType(shape...))
	body(b, x, y, b.Input("s", program.FloatType()))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func bits(list []float32) []uint32 {
	out := make([]uint32, len(list))
	for i, x := range list {
		out[i] = math.Float32bits(x)
	}
	return out
}

// TestThreads checks that several programs in one run, whose elements depend on sums, give the same
// bits for any number of goroutines and in every run.
func TestThreads(t *testing.T) {
	var passes []*cpu.Pass
	for _, shape := range [][]int{{300, 1000}, {7}, {1}, {200000}, {64, 64}} {
		p := build(t, shape, func(b *program.Builder, x, y, s program.Value) {
			sum := x.Mul(y).SumAll()
			next := y.Sub(x.Mul(sum)).SumAll()
			b.Output("x", x.Add(y.Mul(next.Mul(s))))
			b.Output("sum", sum)
			b.Output("norm", x.Square().SumAll())
		})
		passes = append(passes, compile(t, p))
	}
	var want [][]uint32
	for _, threads := range []int{1, 2, 3, 8} {
		parallel := cpu.Goroutines(threads)
		for range 3 {
			var calls []cpu.Call
			for _, k := range passes {
				calls = append(calls, callOf(k))
			}
			if err := cpu.Run(calls, parallel); err != nil {
				t.Fatal(err)
			}
			var got [][]uint32
			for _, c := range calls {
				for _, out := range c.Outputs {
					got = append(got, bits(out.([]float32)))
				}
			}
			if want == nil {
				want = got
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("%d goroutines: output %d differs from that of one", threads, i)
				}
			}
		}
	}
}

func TestReductions(t *testing.T) {
	const n = 100003
	p := build(t, []int{n}, func(b *program.Builder, x, y, s program.Value) {
		b.Output("sum", x.SumAll())
		b.Output("norm", x.Square().SumAll())
		b.Output("distance", x.Sub(y).Square().SumAll())
		b.Output("dot", x.Mul(y).SumAll())
		b.Output("largest", x.ReduceMax(0))
		b.Output("smallest", x.ReduceMin(0))
	})
	k := compile(t, p)
	rng := rand.New(rand.NewPCG(5, 5))
	x, y := numbers(rng, n, false), numbers(rng, n, false)
	var want [6]float64
	want[4], want[5] = math.Inf(-1), math.Inf(1)
	for i := range x {
		a, b := float64(x[i]), float64(y[i])
		want[0] += a
		want[1] += a * a
		want[2] += (a - b) * (a - b)
		want[3] += a * b
		want[4], want[5] = max(want[4], a), min(want[5], a)
	}
	for i, out := range inTiles(t, k, 2, [][]float32{x, y, {0}}, false) {
		// Sums of terms of random signs cancel. Their error is that of sums of magnitudes.
		if got := float64(out[0]); !(math.Abs(got-want[i]) <= 1e-7*n) || i >= 4 && got != want[i] {
			t.Errorf("%s is %v, want %v", p.Outputs[i].Name, got, want[i])
		}
	}
	x[70000] = float32(math.NaN())
	for i, out := range inTiles(t, k, 2, [][]float32{x, y, {0}}, false) {
		if out[0] == out[0] {
			t.Errorf("%s of a tensor with NaN is %v", p.Outputs[i].Name, out[0])
		}
	}
	x[70000] = 3e38
	if norm := inTiles(t, k, 2, [][]float32{x, y, {0}}, false)[1][0]; !math.IsInf(float64(norm), 1) {
		t.Errorf("a sum that overflows is %v", norm)
	}
}

// TestEqualElements checks that a long sum of equal elements is precise.
func TestEqualElements(t *testing.T) {
	const n = 1 << 22
	k := compile(t, build(t, []int{n},
		func(b *program.Builder, x, y, s program.Value) { b.Output("sum", x.SumAll()) }))
	x := make([]float32, n)
	for i := range x {
		x[i] = 0.1
	}
	got := float64(inTiles(t, k, 1, [][]float32{x, x, {0}}, false)[0][0])
	if want := n * float64(float32(0.1)); !(math.Abs(got-want) <= 1e-6*want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSweeps checks that another sweep over the tensors is made only if elements need a reduction.
func TestSweeps(t *testing.T) {
	type value = program.Value
	for want, body := range map[int]func(b *program.Builder, x, y, s value){
		1: func(b *program.Builder, x, y, s value) {
			b.Output("x", x.Add(y))
			b.Output("norm", x.Square().SumAll().Sqrt())
		},
		2: func(b *program.Builder, x, y, s value) {
			b.Output("x", x.Div(x.Square().SumAll().Sqrt()))
			b.Output("norm", y.SumAll())
		},
		3: func(b *program.Builder, x, y, s value) {
			z := x.Sub(x.SumAll())
			b.Output("x", z.Div(z.Square().SumAll().Sqrt()))
		},
		0: func(b *program.Builder, x, y, s value) { b.Output("s", s.Scale(2).Expm1()) },
	} {
		if got := compile(t, build(t, []int{5, 2}, body)).Sweeps(); got != want {
			t.Errorf("%d sweeps, want %d", got, want)
		}
	}
}

// TestExchange checks that inputs are read before outputs in the same memory overwrite them.
func TestExchange(t *testing.T) {
	p := build(t, []int{3000}, func(b *program.Builder, x, y, s program.Value) {
		b.Output("x", y)
		b.Output("y", x)
		b.Output("s", s.Neg())
		b.Output("z", x)
	})
	rng := rand.New(rand.NewPCG(2, 2))
	in := [][]float32{numbers(rng, 3000, true), numbers(rng, 3000, true), {4}}
	got := inTiles(t, compile(t, p), 2, in, true)
	for i, want := range [][]float32{in[1], in[0], {-4}, in[0]} {
		if !slices.Equal(bits(got[i]), bits(want)) {
			t.Errorf("output %q is not what it should be", p.Outputs[i].Name)
		}
	}
}

// TestSelectedInputs checks that outputs that select among inputs have the same bits in place.
func TestSelectedInputs(t *testing.T) {
	for name, body := range map[string]func(b *program.Builder, x, y, yes program.Value){
		"of two": func(b *program.Builder, x, y, yes program.Value) {
			b.Output("y", yes.Select(x, y))
		},
		"or a number": func(b *program.Builder, x, y, yes program.Value) {
			b.Output("y", yes.Select(x, b.Const(0)))
		},
		"of selected": func(b *program.Builder, x, y, yes program.Value) {
			b.Output("y", yes.Select(yes.Select(x, b.Const(0)), y))
			b.Output("z", yes.Select(y, x))
		},
	} {
		k := compile(t, build(t, []int{3000}, func(b *program.Builder, x, y, s program.Value) {
			b.Output("x", x.Add(y))
			body(b, x, y, s.Gt(b.Const(0)))
		}))
		for _, s := range []float32{1, -1} {
			rng := rand.New(rand.NewPCG(3, 3))
			in := [][]float32{numbers(rng, 3000, false), numbers(rng, 3000, false), {s}}
			want := inTiles(t, k, 1, in, false)
			for i, got := range inTiles(t, k, 1, in, true) {
				if !slices.Equal(bits(got), bits(want[i])) {
					t.Errorf("%s, s = %v: output %d in place differs", name, s, i)
				}
			}
		}
	}
}

// TestWrongCalls checks that wrong slices are refused before anything is written.
func TestWrongCalls(t *testing.T) {
	k := compile(t, build(t, []int{4}, func(b *program.Builder, x, y, s program.Value) {
		b.Output("x", x.Add(y))
		b.Output("z", x.Mul(s))
	}))
	four := func() []float32 { return []float32{1, 2, 3, 4} }
	y, one := four(), []float32{1}
	for says, c := range map[string]cpu.Call{
		"2 inputs, want 3": {Inputs: []any{four(), y}, Outputs: []any{four(), four()}},
		`input "y" is a []float32 of length 3, want float[4]`: {Inputs: []any{four(), y[:3], one},
			Outputs: []any{four(), four()}},
		`output "z" is a []float32 of length 1, want float[4]`: {Inputs: []any{four(), y, one},
			Outputs: []any{four(), one}},
		`shares the memory of input "y"`: {Inputs: []any{four(), y, one},
			Outputs: []any{four(), y}},
	} {
		c.Pass = k
		err := cpu.Run([]cpu.Call{c}, cpu.Goroutines(1))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
		if !slices.Equal(y, four()) {
			t.Fatal("something was written")
		}
	}
}
