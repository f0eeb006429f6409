package autodiff_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

type tensors = map[string]reference.Tensor

// run executes a program that must succeed.
func run(t *testing.T, p *program.Program, in tensors) tensors {
	t.Helper()
	out, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func vjp(t *testing.T, p *program.Program, output string, wrt ...string) *program.Program {
	t.Helper()
	d, err := autodiff.VJP(p, output, wrt...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func with(in tensors, name string, x reference.Tensor) tensors {
	out := tensors{name: x}
	for k, v := range in {
		if k != name {
			out[k] = v
		}
	}
	return out
}

func dot(x, y reference.Tensor) float64 {
	sum := 0.0
	for i, v := range x.Floats {
		sum += v * y.Floats[i]
	}
	return sum
}

func random(rng *rand.Rand, t program.Type) reference.Tensor {
	data := make([]float64, t.Size())
	for i := range data {
		data[i] = rng.NormFloat64()
	}
	return reference.Floats(data, t.Shape...)
}

// along returns x + h·v.
func along(x, v reference.Tensor, h float64) reference.Tensor {
	x = x.Clone()
	for i := range x.Floats {
		x.Floats[i] += h * v.Floats[i]
	}
	return x
}

// checkGradient compares the gradient of <dy, output> in random directions of each float input with
// central differences. The error of a central difference with step h is h²·f‴/6, plus the rounding
// error of f divided by h: h = 1e-5 makes both about 1e-10 of the scale.
func checkGradient(t *testing.T, p *program.Program, output string, in tensors, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var wrt []string
	for _, i := range p.Inputs {
		if i.Type.DType == program.Float {
			wrt = append(wrt, i.Name)
		}
	}
	id, _ := p.Output(output)
	dy := random(rng, p.TypeOf(id))
	grads := run(t, vjp(t, p, output, wrt...), with(in, "d."+output, dy))
	value := func(in tensors) float64 { return dot(dy, run(t, p, in)[output]) }
	const h = 1e-5
	for _, name := range wrt {
		for range 3 {
			v := random(rng, in[name].Type)
			up, down := value(with(in, name, along(in[name], v, h))),
				value(with(in, name, along(in[name], v, -h)))
			want, got := (up-down)/(2*h), dot(grads["d."+name], v)
			scale := max(1, math.Abs(up), math.Abs(want)) // nothing of the gradient that is tested
			if !(math.Abs(got-want) <= 1e-6*scale) {
				t.Errorf("d.%s of %s: gradient %v, finite differences %v (scale %v)\n%s", name, output, got,
					want, scale, p)
			}
		}
	}
}

func TestRandomProgramsAgainstFiniteDifferences(t *testing.T) {
	for seed := range uint64(300) {
		c := randprog.New(seed, randprog.Options{Smooth: true, Nodes: 12, Elements: 64})
		for i, o := range c.Program.Outputs {
			if c.Program.TypeOf(o.Value).DType == program.Float && i < 4 {
				checkGradient(t, c.Program, o.Name, c.Inputs, seed)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type build = func(x, y program.Value) program.Value

// shaped lists the operand shapes with which every elementwise operation is tested.
var shaped = [][2][]int{
	{{3, 4}, {3, 4}}, {{3, 4}, {1, 4}}, {{3, 1}, {3, 4}}, {{3, 1}, {1, 4}}, {{}, {3, 4}},
	{{3, 4}, {}}, {{}, {}}, {{1, 1}, {3, 4}}, {{2, 1, 3}, {1, 2, 3}}, {{1}, {}}, {{3, 1}, {}},
}

// TestElementwise checks elementwise operations with all pairs of shapes. The arguments are between
// 0.2 and 2.2, away from singularities.
func TestElementwise(t *testing.T) {
	binary := map[string]build{
		"add":    func(x, y program.Value) program.Value { return x.Add(y) },
		"sub":    func(x, y program.Value) program.Value { return x.Sub(y) },
		"mul":    func(x, y program.Value) program.Value { return x.Mul(y) },
		"div":    func(x, y program.Value) program.Value { return x.Div(y) },
		"pow":    func(x, y program.Value) program.Value { return x.Pow(y) },
		"max":    func(x, y program.Value) program.Value { return x.Max(y) },
		"min":    func(x, y program.Value) program.Value { return x.Min(y) },
		"ldexp":  func(x, y program.Value) program.Value { return x.Ldexp(y.Scale(8).Floor()) },
		"select": func(x, y program.Value) program.Value { return x.Lt(y).Select(x.Square(), y.Neg()) },
	}
	unary := map[string]func(program.Value) program.Value{
		"neg": program.Value.Neg, "abs": program.Value.Abs, "sqrt": program.Value.Sqrt,
		"exp":   program.Value.Exp,
		"expm1": program.Value.Expm1, "log": program.Value.Log, "log1p": program.Value.Log1p,
		"tanh": program.Value.Tanh, "sin": program.Value.Sin, "cos": program.Value.Cos,
		"sign": program.Value.Sign, "floor": program.Value.Floor, "round": program.Value.Round,
		"logb": program.Value.Logb,
	}
	for name, f := range unary {
		binary[name] = func(x, y program.Value) program.Value { return f(x).Add(f(y.Neg().Exp())) }
	}
	for name, f := range binary {
		t.Run(name, func(t *testing.T) {
			for i, shapes := range shaped {
				checkBuilt(t, f, shapes[0], shapes[1], uint64(i))
			}
		})
	}
}

func built(t *testing.T, f build, xShape, yShape []int) *program.Program {
	t.Helper()
	b := program.NewBuilder("test")
	x, y := b.Input("x", program.FloatType(xShape...)), b.Input("y", program.FloatType(yShape...))
	b.Output("out", f(x, y))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func checkBuilt(t *testing.T, f build, xShape, yShape []int, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	in := tensors{}
	p := built(t, f, xShape, yShape)
	for _, i := range p.Inputs {
		x := random(rng, i.Type)
		for j := range x.Floats {
			x.Floats[j] = 0.2 + 2*rng.Float64()
		}
		in[i.Name] = x
	}
	checkGradient(t, p, "out", in, seed)
}

func TestStructure(t *testing.T) {
	cases := []struct {
		name string
		x, y []int
		f    build
	}{
		{"reshape", []int{3, 4}, []int{2, 6},
			func(x, y program.Value) program.Value { return x.Reshape(12).Mul(y.Reshape(12)) }},
		{"transpose", []int{2, 3, 4}, []int{4, 2, 3},
			func(x, y program.Value) program.Value { return x.Transpose(2, 0, 1).Mul(y) }},
		{"broadcast", []int{3}, []int{1, 2}, func(x, y program.Value) program.Value {
			return x.Broadcast([]int{4, 3, 2}, []int{1}).Mul(y.Broadcast([]int{4, 3, 2}, []int{0, 2}))
		}},
		{"broadcast scalar", nil, []int{3},
			func(x, y program.Value) program.Value { return x.Broadcast([]int{3}, nil).Mul(y) }},
		{"slice", []int{5, 6}, []int{4, 3}, func(x, y program.Value) program.Value {
			return x.Slice([]int{1, 2}, []int{5, 5}, []int{1, 1}).Mul(y)
		}},
		{"slice with strides", []int{10, 7}, []int{3, 2}, func(x, y program.Value) program.Value {
			return x.Slice([]int{1, 0}, []int{9, 6}, []int{3, 4}).Mul(y)
		}},
		{"slice to the end", []int{7}, []int{4},
			func(x, y program.Value) program.Value { return x.Slice([]int{0}, []int{7}, []int{2}).Mul(y) }},
		{"slice one", []int{7}, nil, func(x, y program.Value) program.Value {
			return x.Slice([]int{5}, []int{6}, []int{9}).Reshape().Mul(y)
		}},
		{"concatenate", []int{2, 3}, []int{2, 1},
			func(x, y program.Value) program.Value { return x.Concatenate(1, y, x.Square(), y) }},
		{"reduce_sum", []int{2, 3, 4}, []int{3},
			func(x, y program.Value) program.Value { return x.Square().ReduceSum(0, 2).Mul(y) }},
		{"sum of all", []int{2, 3}, nil,
			func(x, y program.Value) program.Value { return x.Square().SumAll().Mul(y) }},
		{"reduce_max", []int{2, 3, 4}, []int{3},
			func(x, y program.Value) program.Value { return x.ReduceMax(0, 2).Mul(y) }},
		{"reduce_min", []int{3, 4}, []int{3},
			func(x, y program.Value) program.Value { return x.ReduceMin(1).Mul(y) }},
		{"mean", []int{3, 4}, []int{3, 4},
			func(x, y program.Value) program.Value { return x.Sub(x.MeanRow()).Mul(y.MaxRow()) }},
		{"hadamard", []int{3, 8}, []int{3, 8},
			func(x, y program.Value) program.Value { return x.Hadamard(4).Mul(y.Hadamard(8)) }},
		{"matmul", []int{3, 4}, []int{4, 5},
			func(x, y program.Value) program.Value { return x.MatMul(y).Tanh() }},
		{"rows by rows", []int{3, 4}, []int{5, 4}, func(x, y program.Value) program.Value {
			return x.Dot(y, [2][]int{{1}, {1}}, [2][]int{}).Tanh()
		}},
		{"outer", []int{3}, []int{4},
			func(x, y program.Value) program.Value { return x.Dot(y, [2][]int{}, [2][]int{}).Tanh() }},
		{"batched", []int{4, 2, 3}, []int{5, 4, 2}, func(x, y program.Value) program.Value {
			return x.Dot(y, [2][]int{{0}, {1}}, [2][]int{{1}, {2}}).Tanh()
		}},
		{"two of each", []int{2, 3, 4, 5, 2}, []int{2, 5, 3, 2, 3},
			func(x, y program.Value) program.Value {
				return x.Dot(y, [2][]int{{4, 1}, {0, 2}}, [2][]int{{3, 0}, {1, 3}}).Tanh()
			}},
		{"with itself", []int{3, 3}, nil,
			func(x, y program.Value) program.Value { return x.MatMul(x).Mul(y) }},
		{"softmax", []int{3, 4}, []int{3, 4}, func(x, y program.Value) program.Value {
			e := x.Sub(x.MaxRow().StopGradient()).Exp()
			return e.Div(e.ReduceSum(1).Reshape(3, 1)).Mul(y)
		}},
		{"unused", []int{3}, []int{3}, func(x, y program.Value) program.Value { return x.Square() }},
		{"constant power", []int{3}, nil, func(x, y program.Value) program.Value {
			b := x.Builder()
			return x.Pow(b.Const(3)).Add(x.Pow(b.Const(2))).Add(x.Pow(b.Const(1))).Mul(y)
		}},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) { checkBuilt(t, c.f, c.x, c.y, uint64(i)) })
	}
}
