package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/internal/testing/bisect"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

func inTurn(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

func build(t testing.TB, write func(b *program.Builder)) *program.Program {
	t.Helper()
	b := program.NewBuilder("test")
	write(b)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func compile(t testing.TB, p *program.Program) *plan.Plan {
	t.Helper()
	compiled, err := plan.Compile(p, plan.Options{Arithmetic: matmul.Float32})
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// TestRandomPrograms compares random programs of all operations with the reference implementation.
// Integers and bools must be equal; package lower explains the tolerance of floats. A second run
// must give the same bits, in memory that the first one has used, and that it takes itself.
func TestRandomPrograms(t *testing.T) {
	for seed := range testlevel.Sample[uint64](30, 200, 1000) {
		options := randprog.Options{Nodes: 10 + int(seed%31), Elements: []int{40, 256, 3000}[seed%3]}
		c := randprog.New(seed, options)
		want, err := reference.Run(c.Program, c.Inputs)
		if err != nil {
			t.Fatal(err)
		}
		p := compile(t, c.Program)
		var in []any
		for _, input := range c.Program.Inputs {
			in = append(in, slice(c.Inputs[input.Name]))
		}
		var runs [2][]any
		for i := range runs {
			for _, o := range c.Program.Outputs {
				memory := slice(reference.Tensor{Type: c.Program.TypeOf(o.Value)})
				if i > 0 {
					memory = nil
				}
				runs[i] = append(runs[i], memory)
			}
			if err := p.Run(in, runs[i], inTurn); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, c.Program)
			}
		}
		for i, o := range c.Program.Outputs {
			if err := compare(runs[0][i], want[o.Name]); err != nil {
				t.Errorf("seed %d: output %s: %v\n%s%s", seed, o.Name, err, c.Program, firstWrong(t, c))
			}
			if first, second := fmt.Sprint(runs[0][i]), fmt.Sprint(runs[1][i]); first != second {
				t.Errorf("seed %d: output %s of a second run differs\n%s", seed, o.Name, c.Program)
			}
		}
	}
}

// firstWrong returns the operation that is computed wrongly.
func firstWrong(t *testing.T, c randprog.Case) string {
	t.Helper()
	found, err := bisect.First(c.Program, c.Inputs, 2e-4,
		func(p *program.Program) (list []reference.Tensor, err error) {
			var in, out []any
			for _, input := range p.Inputs {
				in = append(in, slice(c.Inputs[input.Name]))
			}
			for _, o := range p.Outputs {
				out = append(out, slice(reference.Tensor{Type: p.TypeOf(o.Value)}))
			}
			err = compile(t, p).Run(in, out, inTurn)
			for i, o := range p.Outputs {
				list = append(list, tensor(out[i], p.TypeOf(o.Value)))
			}
			return list, err
		})
	if err != nil {
		t.Error(err)
	}
	return found
}

// tensor is the inverse of slice.
func tensor(memory any, t program.Type) reference.Tensor {
	x := reference.Tensor{Type: t}
	switch m := memory.(type) {
	case []float32:
		x.Floats = convert(m, func(v float32) float64 { return float64(v) })
	case []int32:
		x.Ints = convert(m, func(v int32) int64 { return int64(v) })
	case []uint32:
		x.Ints = convert(m, func(v uint32) int64 { return int64(v) })
	case []bool:
		x.Ints = convert(m, func(v bool) int64 { return map[bool]int64{true: 1}[v] })
	}
	return x
}

// slice returns the elements of a tensor, zeros if it has none, as a slice of their type.
func slice(x reference.Tensor) any {
	n := int(x.Type.Size())
	floats, ints := append(x.Floats, make([]float64, n)...), append(x.Ints, make([]int64, n)...)
	switch x.Type.DType {
	case program.Float:
		return convert(floats[:n], func(v float64) float32 { return float32(v) })
	case program.Int:
		return convert(ints[:n], func(v int64) int32 { return int32(v) })
	case program.Uint:
		return convert(ints[:n], func(v int64) uint32 { return uint32(v) })
	}
	return convert(ints[:n], func(v int64) bool { return v != 0 })
}

func convert[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

func compare(got any, want reference.Tensor) error {
	floats, ok := got.([]float32)
	if !ok {
		if g, w := fmt.Sprint(got), fmt.Sprint(slice(want)); g != w {
			return fmt.Errorf("got %s, want %s", g, w)
		}
		return nil
	}
	largest := 1.0
	for _, v := range want.Floats {
		if a := math.Abs(v); !math.IsInf(a, 0) {
			largest = max(largest, a)
		}
	}
	for i, w := range want.Floats {
		g := float64(floats[i])
		if g != w && !(math.IsNaN(g) && math.IsNaN(w)) && !(math.Abs(g-w) <= 2e-4*largest) {
			return fmt.Errorf("element %d is %v, want %v", i, g, w)
		}
	}
	return nil
}

// TestMemory checks that values of a chain of products share memory: one is enough, beside the
// output.
func TestMemory(t *testing.T) {
	const n = 64
	p := compile(t, build(t, func(b *program.Builder) {
		w := b.Input("w", program.FloatType(n, n))
		x := b.Input("x", program.FloatType(n, n))
		for range 10 {
			x = x.MatMul(w)
		}
		b.Output("y", x)
	}))
	if got, want := p.Memory(), 4*n*n; got != want {
		t.Errorf("a chain of products takes %d bytes, want %d", got, want)
	}
}

// TestMemoryOfOperands checks that a sum is computed in the memory of an operand, unless that is
// read later.
func TestMemoryOfOperands(t *testing.T) {
	const n = 64
	for later, want := range []int{4 * n * n, 12 * n * n} {
		p := build(t, func(b *program.Builder) {
			w := b.Input("w", program.FloatType(n, n))
			x := w.MatMul(w)
			y := x.MatMul(w)
			z := x.Sub(y).MatMul(w)
			if later == 1 {
				z = z.Add(x.MatMul(y))
			}
			b.Output("z", z)
		})
		if got := compile(t, p).Memory(); got != want {
			t.Errorf("%d later readers: %d bytes, want %d", later, got, want)
		}
	}
}

// TestReadBefore checks that what reads an input is computed before its replacement, which then
// needs no memory.
func TestReadBefore(t *testing.T) {
	p := compile(t, build(t, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(64, 64))
		b.Output("x", x.Shift(1))
		b.Output("product", x.MatMul(x))
	}))
	if got := p.Memory(); got != 0 {
		t.Errorf("it takes %d bytes, want 0", got)
	}
	x, product := slices.Repeat([]float32{1}, 64*64), make([]float32, 64*64)
	if err := p.Run([]any{x}, []any{x, product}, inTurn); err != nil {
		t.Fatal(err)
	}
	if x[0] != 2 || product[0] != 64 {
		t.Errorf("got %v and %v, want 2 and 64", x[0], product[0])
	}
}

// TestReadBeforeInOrder checks that a replacement waits for what reads its input, rather than that
// all that the reader depends on is computed early: factors take memory one after the other.
func TestReadBeforeInOrder(t *testing.T) {
	const n, factors = 512, 6
	p := compile(t, build(t, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(n, n))
		roots := make([]program.Value, factors)
		for i := range roots {
			roots[i] = b.Input(fmt.Sprint(i), program.FloatType(n, n))
		}
		b.Output("x", x.Shift(1))
		product := roots[0]
		for _, root := range roots {
			product = root.MatMul(root).MatMul(product)
		}
		b.Output("product", product.MatMul(x))
	}))
	if got, most := p.Memory(), 3*n*n*4; got > most {
		t.Errorf("it takes %d bytes, want at most %d", got, most)
	}
}

// TestInPlace checks outputs in the memory of inputs that are exchanged, and that are read after
// the output is known.
func TestInPlace(t *testing.T) {
	p := build(t, func(b *program.Builder) {
		x, y, z := b.Input("x", program.FloatType(4)), b.Input("y", program.FloatType(4)),
			b.Input("z", program.FloatType(4))
		square := z.Reshape(2, 2).MatMul(z.Reshape(2, 2)).Reshape(4)
		b.Output("x", y)
		b.Output("y", x)
		b.Output("z", square)
		b.Output("last", square.Reshape(2, 2).MatMul(z.Reshape(2, 2)))
	})
	x, y, z := []float32{1, 2, 3, 4}, []float32{5, 6, 7, 8}, []float32{1, 1, 0, 1}
	last := make([]float32, 4)
	if err := compile(t, p).Run([]any{x, y, z}, []any{x, y, z, last}, inTurn); err != nil {
		t.Fatal(err)
	}
	const want = "[5 6 7 8] [1 2 3 4] [1 2 0 1] [1 3 0 1]"
	if got := fmt.Sprint(x, y, z, last); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestInPlaceByOtherNames checks outputs in the memory of inputs that reach them through a reshape,
// and of one value under two names.
func TestInPlaceByOtherNames(t *testing.T) {
	p := build(t, func(b *program.Builder) {
		x, y, z := b.Input("x", program.FloatType(4)), b.Input("y", program.FloatType(4)),
			b.Input("z", program.FloatType(4))
		b.Output("x", x.Reshape(2, 2).Square().Reshape(4))
		sum := y.Add(z)
		b.Output("y", sum)
		b.Output("z", sum)
		b.Output("product", y.Reshape(2, 2).MatMul(sum.Reshape(2, 2)))
	})
	x, y, z := []float32{1, 2, 3, 4}, []float32{1, 0, 0, 1}, []float32{1, 1, 1, 1}
	product := make([]float32, 4)
	if err := compile(t, p).Run([]any{x, y, z}, []any{x, y, z, product}, inTurn); err != nil {
		t.Fatal(err)
	}
	const want = "[1 4 9 16] [2 1 1 2] [2 1 1 2] [2 1 1 2]"
	if got := fmt.Sprint(x, y, z, product); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestBoth computes two calls in a chain, the second with its adjoint, the first after it.
func TestBoth(t *testing.T) {
	b := program.NewBuilder("square")
	b.Output("y", b.Input("x", program.FloatType(4)).Square())
	meaning, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	joined := 0
	square := func(m plan.Memory, _ func(int, func(int))) error {
		x, y := m.Operands[0].([]float32), m.Results[0].([]float32)
		for i, v := range x {
			if y[i] = v * v; m.Gradients != nil {
				m.Gradients[0].([]float32)[i] = 2 * v * m.Adjoints[0].([]float32)[i]
			}
		}
		return nil
	}
	kernels := map[string]func(*program.Call, plan.Options) (*plan.Kernel, error){
		"square": func(*program.Call, plan.Options) (*plan.Kernel, error) {
			return &plan.Kernel{Forward: square, Both: func(m plan.Memory,
				parallel func(int, func(int))) error {
				joined++
				return square(m, parallel)
			}}, nil
		}}
	forward := build(t, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(4))
		y := b.Call(&program.Call{Name: "square", Meaning: meaning}, x)[0]
		again := &program.Call{Name: "square", Meaning: meaning}
		b.Output("y", b.Call(again, y.Reshape(2, 2).Reshape(4))[0])
	})
	vjp, err := autodiff.VJP(forward, "y", "x")
	if err != nil {
		t.Fatal(err)
	}
	p := build(t, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(4))
		b.Output("y", transform.Inline(b, forward, x)["y"])
		b.Output("dx", transform.Inline(b, vjp, x, b.Full(1, 4))["d.x"])
	})
	compiled, err := plan.Compile(p, plan.Options{Arithmetic: matmul.Float32, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	y, dx := make([]float32, 4), make([]float32, 4)
	if err := compiled.Run([]any{[]float32{1, 2, -1, 3}}, []any{y, dx}, inTurn); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(y, dx, joined), "[1 16 1 81] [4 32 -4 108] 2"; got != want {
		t.Errorf("got %s, want %s", got, want) // dx = 4x³
	}
}

// TestSharedRow checks that a vector is added to rows, and its gradient summed, in memory that does
// not grow with the number of rows.
func TestSharedRow(t *testing.T) {
	const rows, columns = 512, 64
	forward := build(t, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(rows, columns))
		bias := b.Input("bias", program.FloatType(columns))
		b.Output("y", x.Add(bias.Reshape(1, columns)))
	})
	vjp, err := autodiff.VJP(forward, "y", "bias")
	if err != nil {
		t.Fatal(err)
	}
	x, bias := make([]float32, rows*columns), make([]float32, columns)
	for i := range x {
		x[i], bias[i%columns] = float32(i%7), float32(i%columns)
	}
	y, d := make([]float32, rows*columns), make([]float32, columns)
	p, back := compile(t, forward), compile(t, vjp)
	if err := p.Run([]any{x, bias}, []any{y}, inTurn); err != nil {
		t.Fatal(err)
	}
	if err := back.Run([]any{x, bias, y}, []any{d}, inTurn); err != nil {
		t.Fatal(err)
	}
	sums := make([]float64, columns)
	for i := range y {
		if want := x[i] + bias[i%columns]; y[i] != want {
			t.Fatalf("element %d is %v, want %v", i, y[i], want)
		}
		sums[i%columns] += float64(y[i])
	}
	for i, want := range sums {
		if d[i] != float32(want) {
			t.Errorf("the gradient of element %d is %v, want %v", i, d[i], want)
		}
	}
	if got := p.Memory() + back.Memory(); got != 0 {
		t.Errorf("a sum and its adjoint take %d bytes, want none beside inputs and outputs", got)
	}
}

// TestBFloat16 checks that products in bfloat16 round their operands once, wherever the operands
// are stored.
func TestBFloat16(t *testing.T) {
	const n = 33
	p := build(t, func(b *program.Builder) {
		x, w := b.Input("x", program.FloatType(n, n)), b.Input("w", program.FloatType(n, n))
		b.Output("y", x.MatMul(w).MatMul(w.Tanh()).Add(x))
	})
	compiled, err := plan.Compile(p, plan.Options{Arithmetic: matmul.BFloat16})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	x, w, got := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	for i := range x {
		x[i], w[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
	}
	if err := compiled.Run([]any{x, w}, []any{got}, inTurn); err != nil {
		t.Fatal(err)
	}
	if got, want := compiled.Memory(), (2+2+4)*n*n; got != want {
		t.Errorf("two operands of products and one that is added take %d bytes, want %d", got, want)
	}
	rounded := func(x []float32) []float64 {
		return convert(x, func(v float32) float64 {
			bits := math.Float32bits(v)
			return float64(math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff))
		})
	}
	multiply := func(a, b []float64) []float32 {
		out := make([]float32, n*n)
		for i := range out {
			sum := 0.0
			for k := range n {
				sum += a[i/n*n+k] * b[k*n+i%n]
			}
			out[i] = float32(sum)
		}
		return out
	}
	tanh := convert(w, func(v float32) float32 { return float32(math.Tanh(float64(v))) })
	want := multiply(rounded(multiply(rounded(x), rounded(w))), rounded(tanh))
	for i := range want {
		// A sum in another order may be rounded to the next number of 8 bits.
		if d := math.Abs(float64(got[i] - x[i] - want[i])); d > 0.02 {
			t.Fatalf("element %d is %v, want %v", i, got[i]-x[i], want[i])
		}
	}
}

func TestWrongArguments(t *testing.T) {
	p := compile(t, build(t, func(b *program.Builder) {
		b.Output("y", b.Input("x", program.FloatType(2, 3)).Neg())
	}))
	for want, run := range map[string]func() error{
		"got 0 inputs and 1 outputs, want 1 and 1": func() error {
			return p.Run(nil, []any{make([]float32, 6)}, inTurn)
		},
		`input "x" is a []float32 of length 5, want float[2,3]`: func() error {
			return p.Run([]any{make([]float32, 5)}, []any{make([]float32, 6)}, inTurn)
		},
		`output "y" is a []int32 of length 6, want float[2,3]`: func() error {
			return p.Run([]any{make([]float32, 6)}, []any{make([]int32, 6)}, inTurn)
		},
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

func Example() {
	b := program.NewBuilder("layer")
	x, w := b.Input("x", program.FloatType(2, 2)), b.Input("w", program.FloatType(2, 2))
	b.Output("y", x.MatMul(w).Max(b.Const(0)).Shift(1))
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	compiled, err := plan.Compile(p, plan.Options{Arithmetic: matmul.Float32})
	if err != nil {
		panic(err)
	}
	y := make([]float32, 4)
	err = compiled.Run([]any{[]float32{1, 2, 3, 4}, []float32{1, 0, 0, -1}}, []any{y}, inTurn)
	fmt.Println(y, err)
	// Output: [2 1 4 1] <nil>
}
