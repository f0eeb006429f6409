package matrix_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/matrix"
	"github.com/cage-qat/cage/host/tile"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

func times(x, y program.Value, i, j int) program.Value {
	return x.Dot(y, [2][]int{{i}, {j}}, [2][]int{})
}

func identity(b *program.Builder, n int) program.Value {
	index := program.Type{DType: program.Int, Shape: []int{n, n}}
	return b.Iota(index, 0).Eq(b.Iota(index, 1)).Convert(program.Float)
}

// orthogonalize writes Newton–Schulz steps on S alone, with momentum before and decay
// after them.
func orthogonalize(b *program.Builder, rows, cols int) {
	x, g, m := b.Input("x", program.FloatType(rows, cols)), b.Input("gradient", program.FloatType(rows, cols)), b.Input("state.m", program.FloatType(rows, cols))
	rate, clip := b.Input("rate", program.FloatType()), b.Input("clip", program.FloatType())
	b.Input("unused", program.FloatType())
	g = g.Mul(clip)
	decayed := x.Mul(b.Const(1).Sub(rate.Scale(0.1)))
	m = m.Scale(0.9).Add(g)
	u := g.Add(m.Scale(0.9))
	eye := identity(b, rows)
	s := times(u, u, 1, 1)
	norm := s.Mul(eye).Sum(1).Sum(0).Sqrt().Shift(1e-7)
	s = s.Div(norm.Square())
	all := eye.Div(norm)
	for range 2 {
		p := times(s.Scale(2.0315).Add(eye.Scale(-4.775)), s, 1, 0).Add(eye.Scale(3.4445))
		all = times(p, all, 1, 0)
		s = times(times(p, s, 1, 0), p, 1, 0)
	}
	b.Output("x", decayed.Sub(times(all, u, 1, 0).Mul(rate)))
	b.Output("state.m", m)
}

// orthogonalizeStack is orthogonalize for the parts of a matrix, each with its own norm.
func orthogonalizeStack(b *program.Builder, parts, rows, cols int) {
	x, g := b.Input("x", program.FloatType(parts*rows, cols)), b.Input("gradient", program.FloatType(parts*rows, cols))
	each := [2][]int{{0}, {0}}
	u := g.Scale(0.5).Reshape(parts, rows, cols)
	eye := identity(b, rows).Reshape(1, rows, rows)
	s := u.Dot(u, [2][]int{{2}, {2}}, each)
	norm := s.Mul(eye).Sum(2).Sum(1).Reshape(parts, 1, 1).Sqrt().Shift(1e-7)
	s = s.Div(norm.Square())
	p := s.Dot(s, [2][]int{{2}, {1}}, each).Scale(2.0315).Add(s.Scale(-4.775)).Add(eye.Scale(3.4445))
	u = p.Div(norm).Dot(u, [2][]int{{2}, {1}}, each)
	b.Output("x", x.Sub(u.Reshape(parts*rows, cols).Scale(0.1)))
}

// rotate writes Adam in given bases, whose moments are transposed, and leaves the bases
// as they are.
func rotate(b *program.Builder, rows, cols int) {
	x, g := b.Input("x", program.FloatType(rows, cols)), b.Input("gradient", program.FloatType(rows, cols))
	l, r := b.Input("state.l", program.FloatType(rows, rows)), b.Input("state.r", program.FloatType(cols, cols))
	q, f := b.Input("state.q", program.FloatType(rows, rows)), b.Input("state.f", program.FloatType(rows, rows))
	m, v := b.Input("state.m", program.FloatType(cols, rows)), b.Input("state.v", program.FloatType(cols, rows))
	step := b.Input("step", program.FloatType())
	turned := times(times(r, g, 0, 1), q, 1, 0)
	live := step.Gt(b.Const(1)).Convert(program.Float)
	m = m.Scale(0.9).Add(turned.Mul(live.Scale(0.1)))
	v = v.Scale(0.9).Add(turned.Square().Mul(live.Scale(0.1)))
	u := m.Div(v.Sqrt().Shift(1e-3))
	u = u.Mul(b.Const(1).Div(u.Square().Sum(1).Sum(0).Sqrt().Shift(1)))
	b.Output("x", x.Sub(times(q, times(u, r, 0, 1), 1, 0).Scale(0.01)))
	b.Output("state.l", l.Scale(0.95).Add(times(g, g, 1, 1).Scale(0.05)))
	b.Output("state.r", r)
	b.Output("state.q", f.Transpose(1, 0))
	b.Output("state.f", q)
	b.Output("state.m", m)
	b.Output("state.v", v)
}

// stacked writes products of blocks.
func stacked(b *program.Builder, n, rows, cols int) {
	x, w := b.Input("x", program.FloatType(n*rows, cols)), b.Input("w", program.FloatType(n, rows, rows))
	blocks := x.Reshape(n, rows, cols)
	each := [2][]int{{0}, {0}}
	gram := blocks.Dot(blocks, [2][]int{{2}, {2}}, each)
	b.Output("w", w.Add(gram))
	b.Output("x", w.Dot(blocks, [2][]int{{1}, {1}}, each).Reshape(n*rows, cols).Add(x))
}

// other reads an input after its successor is known, and folds tensors of two sizes into
// one number.
func other(b *program.Builder, n int) {
	x, y := b.Input("x", program.FloatType(n, n)), b.Input("y", program.FloatType(n, 2*n))
	a := times(x, x, 1, 0)
	next := x.Add(a)
	total := x.SumAll().Add(y.SumAll()).Scale(0.01)
	b.Output("x", next)
	b.Output("y", times(next, y, 1, 0).Add(times(x, y, 1, 0)).Mul(total))
	b.Output("z", x.Mul(total))
	b.Output("total", total)
}

// remember moves inputs to the outputs of others, and selects one for another.
func remember(b *program.Builder, n int) {
	x, s := b.Input("x", program.FloatType(n, n)), b.Input("s", program.FloatType())
	var past [4]program.Value
	for i := range past {
		past[i] = b.Input(fmt.Sprint("past", i), program.FloatType(n, n))
	}
	b.Output("x", x.Add(past[2]))
	b.Output("past0", times(x, x, 1, 0))
	b.Output("past1", past[0])
	b.Output("past2", past[1])
	b.Output("past3", s.Gt(b.Const(0)).Select(x, past[3]))
}

var cases = []struct {
	name  string
	write func(b *program.Builder)
}{
	{"wide", func(b *program.Builder) { orthogonalize(b, 24, 70) }},
	{"square", func(b *program.Builder) { orthogonalize(b, 65, 65) }},
	{"large", func(b *program.Builder) { orthogonalize(b, 200, 230) }},
	{"parts", func(b *program.Builder) { orthogonalizeStack(b, 3, 40, 50) }},
	{"rotated", func(b *program.Builder) { rotate(b, 70, 33) }},
	{"stacked", func(b *program.Builder) { stacked(b, 3, 20, 40) }},
	{"other", func(b *program.Builder) { other(b, 40) }},
	{"remembered", func(b *program.Builder) { remember(b, 40) }},
}

func build(t testing.TB, write func(b *program.Builder)) *program.Program {
	b := program.NewBuilder("test")
	write(b)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// call makes a call with random inputs; outputs take the place of the inputs of their
// names.
func call(k *matrix.Kernel, seed uint64, inPlace bool) (matrix.Call, map[string]reference.Tensor) {
	r := rand.New(rand.NewPCG(seed, 0))
	c, exact := matrix.Call{Kernel: k}, map[string]reference.Tensor{}
	p := k.Program()
	for _, in := range p.Inputs {
		data, wide := make([]float32, in.Type.Size()), make([]float64, in.Type.Size())
		for i := range data {
			data[i] = float32(r.NormFloat64())
			if len(data) == 1 || in.Name == "state.v" {
				data[i] = 1 + r.Float32()
			}
			wide[i] = float64(data[i])
		}
		c.Inputs = append(c.Inputs, data)
		exact[in.Name] = reference.Tensor{Type: in.Type, Floats: wide}
	}
	for _, o := range p.Outputs {
		if i := p.Input(o.Name); i >= 0 && inPlace {
			c.Outputs = append(c.Outputs, c.Inputs[i])
			continue
		}
		c.Outputs = append(c.Outputs, make([]float32, p.TypeOf(o.Value).Size()))
	}
	return c, exact
}

// TestMatchesReference: up to rounding, with outputs in the place of inputs and without.
func TestMatchesReference(t *testing.T) {
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			p := build(t, test.write)
			k, err := matrix.Compile(p)
			if err != nil {
				t.Fatal(err)
			}
			runner := matrix.NewRunner(1)
			for seed := range uint64(3) {
				c, exact := call(k, seed, seed > 0)
				want, err := reference.Run(p, exact)
				if err != nil {
					t.Fatal(err)
				}
				if err := runner.Run([]matrix.Call{c}); err != nil {
					t.Fatal(err)
				}
				for i, o := range p.Outputs {
					most := 0.0
					for _, v := range want[o.Name].Floats {
						most = max(most, math.Abs(v))
					}
					for j, v := range want[o.Name].Floats {
						if got := float64(c.Outputs[i][j]); !(math.Abs(got-v) <= 2e-5*most) {
							t.Fatalf("%s[%d] = %v, want %v of at most %v", o.Name, j, got, v, most)
						}
					}
				}
			}
		})
	}
}

// TestThreads: the bits do not depend on the number of goroutines, nor on what a runner
// computed before.
func TestThreads(t *testing.T) {
	var want [][]float32
	for _, threads := range []int{1, 2, 5} {
		runner := matrix.NewRunner(threads)
		for round := range 2 {
			var calls []matrix.Call
			for i := range 12 {
				k, err := matrix.Compile(build(t, cases[i%len(cases)].write))
				if err != nil {
					t.Fatal(err)
				}
				c, _ := call(k, uint64(i), true)
				calls = append(calls, c)
			}
			if err := runner.Run(calls); err != nil {
				t.Fatal(err)
			}
			var got [][]float32
			for _, c := range calls {
				got = append(got, c.Outputs...)
			}
			if want == nil {
				want = got
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("%d goroutines, round %d: output %d differs", threads, round, i)
				}
			}
		}
	}
}

// TestNotFinite: what is not finite spreads as in the definition.
func TestNotFinite(t *testing.T) {
	k, err := matrix.Compile(build(t, cases[1].write))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := call(k, 1, false)
	c.Inputs[1][7] = float32(math.NaN())
	if err := matrix.NewRunner(1).Run([]matrix.Call{c}); err != nil {
		t.Fatal(err)
	}
	for i, v := range c.Outputs[0] {
		if v == v {
			t.Fatalf("element %d is %v", i, v)
		}
	}
}

func TestRefused(t *testing.T) {
	programs := map[string]func(b *program.Builder){
		"three axes": func(b *program.Builder) {
			x := b.Input("x", program.FloatType(2, 3, 4))
			b.Output("y", x.Dot(x, [2][]int{{1, 2}, {1, 2}}, [2][]int{}))
		},
		"a slice": func(b *program.Builder) {
			x := b.Input("x", program.FloatType(4, 4))
			b.Output("y", times(x, x, 0, 0).Slice([]int{0, 0}, []int{2, 4}, []int{1, 1}))
		},
		"rows folded": func(b *program.Builder) {
			x := b.Input("x", program.FloatType(4, 4))
			b.Output("y", times(x, x, 0, 0).Sum(1))
		},
		"an exchange": func(b *program.Builder) {
			x, y, z := b.Input("x", program.FloatType(4, 4)), b.Input("y", program.FloatType(4, 4)), b.Input("z", program.FloatType(4, 4))
			b.Output("x", y)
			b.Output("y", x)
			b.Output("z", times(z, z, 1, 0))
		},
		"only numbers": func(b *program.Builder) { b.Output("y", b.Input("x", program.FloatType()).Scale(2)) },
	}
	for name, write := range programs {
		var refused *tile.RefusedError
		if _, err := matrix.Compile(build(t, write)); !errors.As(err, &refused) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

// TestRunChecksMemory: slices that do not fit, or are in the wrong place, are refused.
func TestRunChecksMemory(t *testing.T) {
	k, err := matrix.Compile(build(t, cases[0].write))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := call(k, 1, false)
	c.Inputs[2] = c.Inputs[2][1:]
	if err := matrix.NewRunner(1).Run([]matrix.Call{c}); err == nil {
		t.Error("an input that is too short was accepted")
	}
	b := program.NewBuilder("two")
	b.Output("z", b.Input("x", program.FloatType(2, 2)).Add(b.Input("y", program.FloatType(2, 2)).MatMul(b.Input("w", program.FloatType(2, 2)))))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if k, err = matrix.Compile(p); err != nil {
		t.Fatal(err)
	}
	x := []float32{1, 2, 3, 4}
	c = matrix.Call{Kernel: k, Inputs: [][]float32{x, {1, 0, 0, 1}, {1, 0, 0, 1}}, Outputs: [][]float32{x}}
	if err := matrix.NewRunner(1).Run([]matrix.Call{c}); err == nil {
		t.Error("an output in the place of an input of another name was accepted")
	}
}

func BenchmarkOrthogonalize(b *testing.B) {
	for _, size := range [][2]int{{512, 512}, {512, 1408}} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			k, err := matrix.Compile(build(b, func(w *program.Builder) { orthogonalize(w, size[0], size[1]) }))
			if err != nil {
				b.Fatal(err)
			}
			c, _ := call(k, 1, false)
			runner := matrix.NewRunner(1)
			for b.Loop() {
				if err := runner.Run([]matrix.Call{c}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
