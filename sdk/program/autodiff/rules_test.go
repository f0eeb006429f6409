package autodiff_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestRulesAtSpecialPoints checks gradients where finite differences do not apply: at ties, on
// stopped and piecewise constant paths, and for non-finite values.
func TestRulesAtSpecialPoints(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	two := func(f func(x, y program.Value) program.Value) build { return f }
	cases := []struct {
		name           string
		f              build
		x, y, dx, dOut []float64
	}{
		{"max splits ties", two(program.Value.Max), []float64{1, 2, 3, nan}, []float64{1, 3, 2, 1},
			[]float64{0.5, 0, 1, 0}, nil},
		{"min splits ties", two(program.Value.Min), []float64{1, 2, 3, nan}, []float64{1, 3, 2, 1},
			[]float64{0.5, 1, 0, 0}, nil},
		{"reduce_max divides", func(x, y program.Value) program.Value { return x.ReduceMax(0) },
			[]float64{5, 1, 5, 5, 5}, nil, []float64{0.25, 0, 0.25, 0.25, 0.25}, []float64{1}},
		{"order_statistic divides",
			func(x, y program.Value) program.Value {
				return x.OrderStatistic(x.Builder().ConstInt(1))
			}, []float64{5, 1, 3, 3}, nil, []float64{0, 0, 0.5, 0.5}, []float64{1}},
		{"median of an even number", func(x, y program.Value) program.Value { return x.QuantileRow(0.5) },
			[]float64{5, 1, 3, 9}, nil, []float64{0.5, 0, 0.5, 0}, []float64{1}},
		{"lookup sums", func(x, y program.Value) program.Value {
			return y.Convert(program.Int).Lookup(x)
		}, []float64{7, 8, 9}, []float64{2, 0, 2, 5, -1}, []float64{11, 0, 13},
			[]float64{8, 1, 2, 3, 10}},
		{"scatter_add looks up",
			func(x, y program.Value) program.Value {
				return y.Convert(program.Int).ScatterAdd(x, 2)
			}, []float64{7, 8, 9}, []float64{1, 0, 4}, []float64{20, 10, 20}, []float64{10, 20}},
		{"top_k", func(x, y program.Value) program.Value {
			return x.TopK(x.Builder().ConstInt(2)).Select(x, x.Builder().Const(0))
		}, []float64{1, 3, 3, 3}, nil, []float64{0, 1, 1, 0}, nil},
		{"the index of the nearest",
			func(x, y program.Value) program.Value {
				return x.Nearest(y).Convert(program.Float).Mul(x)
			}, []float64{1, 4}, []float64{0, 3, 5}, []float64{0, 1}, nil},
		{"abs of zero", func(x, y program.Value) program.Value { return x.Abs() }, []float64{0, -2}, nil,
			[]float64{0, -1}, nil},
		{"stop_gradient", func(x, y program.Value) program.Value { return x.StopGradient().Mul(x) },
			[]float64{2, 3}, nil, []float64{2, 3}, nil},
		{"straight-through",
			func(x, y program.Value) program.Value {
				return x.Round().Sub(x).StopGradient().Add(x)
			}, []float64{2.4, 3.6}, nil, []float64{1, 1}, nil},
		{"round", func(x, y program.Value) program.Value { return x.Round() }, []float64{0.4, 3}, nil,
			[]float64{0, 0}, nil},
		{"convert", func(x, y program.Value) program.Value {
			return x.Convert(program.Int).Convert(program.Float).Add(x.Convert(program.Float))
		}, []float64{2, 3}, nil, []float64{1, 1}, nil},
		{"bitcast", func(x, y program.Value) program.Value { return x.Bitcast(program.Float) },
			[]float64{2}, nil, []float64{0}, nil},
		{"clip outside", func(x, y program.Value) program.Value { return x.Clip(-1, 1) },
			[]float64{-2, -1, 0, 1, 2, -inf, inf, nan}, nil, []float64{0, 1, 1, 1, 0, 0, 0, 0}, nil},
		{"clamp to its own sum",
			func(x, y program.Value) program.Value {
				return x.Clamp(x.SumAll().Neg(), x.SumAll())
			}, []float64{-8, 9, 0.5}, nil, []float64{0, 0, 1}, nil},
		{"value not taken", func(x, y program.Value) program.Value {
			return x.IsFinite().Select(x, x.Builder().Const(0))
		}, []float64{inf, 1}, nil, []float64{0, 1}, nil},
		{"NaN cotangent not taken",
			func(x, y program.Value) program.Value {
				return y.Gt(y.Builder().Const(0)).Select(x, y)
			}, []float64{1, 2}, []float64{1, -1}, []float64{nan, 0}, []float64{nan, nan}},
		{"steep quotient", two(func(x, y program.Value) program.Value { return y.Div(x) }),
			[]float64{1e-200}, []float64{1e-200}, []float64{-1e200}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.y == nil {
				c.y = c.x
			}
			if c.dOut == nil {
				c.dOut = make([]float64, len(c.x))
				for i := range c.dOut {
					c.dOut[i] = 1
				}
			}
			p := built(t, c.f, []int{len(c.x)}, []int{len(c.y)})
			id, _ := p.Output("out")
			out := run(t, vjp(t, p, "out", "x"), tensors{
				"x": reference.Floats(c.x, len(c.x)), "y": reference.Floats(c.y, len(c.y)),
				"d.out": reference.Floats(c.dOut, p.TypeOf(id).Shape...),
			})["d.x"].Floats
			for i, want := range c.dx {
				if out[i] != want && !(math.IsNaN(out[i]) && math.IsNaN(want)) {
					t.Errorf("d.x = %v, want %v", out, c.dx)
					break
				}
			}
		})
	}
}

// TestGradientColumn checks the column Gradient of the table for each operation on floats: whether
// the gradient is passed on, is zero, or is refused.
func TestGradientColumn(t *testing.T) {
	attrs := map[program.Op]program.Attr{
		program.OpTranspose: {Axes: []int{1, 0}}, program.OpBroadcast: {Axes: []int{0, 1}},
		program.OpSlice:       {Start: []int{0, 0}, Limit: []int{2, 2}, Stride: []int{1, 1}},
		program.OpConcatenate: {Axes: []int{0}}, program.OpHadamard: {Block: 2},
		program.OpReduceSum: {Axes: []int{0}}, program.OpReduceMax: {Axes: []int{0}},
		program.OpReduceMin: {Axes: []int{0}},
	}
	passed := 0
	for _, info := range program.Ops() {
		b := program.NewBuilder("column")
		matrix := program.FloatType(2, 2)
		args := []program.Value{b.Input("x", matrix), b.Input("y", matrix), b.Input("z", matrix)}
		if info.Op == program.OpSelect {
			args[0] = args[0].Lt(args[1])
		}
		if info.Op == program.OpClamp {
			args[1], args[2] = args[1].SumAll().Neg(), args[2].SumAll()
		}
		if info.Class == program.ClassSource {
			continue
		}
		out := b.Apply(info.Op, attrs[info.Op], matrix, args[:max(1, info.Arity)]...)
		if b.Err() != nil || out.Type().DType != program.Float {
			continue // not an operation on floats with a float result
		}
		b.Output("out", out)
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		passed++
		d, err := autodiff.VJP(p, "out", "x", "y", "z")
		if refused := info.Gradient == "an error"; (err != nil) != refused {
			t.Errorf("%s: the table says %q, VJP %v", info.Name, info.Gradient, err)
		}
		if err != nil {
			continue
		}
		rng := rand.New(rand.NewPCG(1, uint64(info.Op)))
		in := tensors{"d.out": random(rng, out.Type())}
		for _, name := range []string{"x", "y", "z"} {
			in[name] = random(rng, matrix)
			for i, v := range in[name].Floats {
				in[name].Floats[i] = 0.5 + math.Abs(v)
			}
		}
		zero := true
		for _, dx := range run(t, d, in) {
			zero = zero && dot(dx, dx) == 0
		}
		if want := info.Gradient == "zero"; zero != want {
			t.Errorf("%s: the table says %q, the gradient is zero: %v", info.Name, info.Gradient, zero)
		}
	}
	if passed < 30 {
		t.Errorf("only %d operations were tried", passed)
	}
}

func TestSecondDerivative(t *testing.T) {
	p := built(t, func(x, y program.Value) program.Value {
		return x.Mul(x).Mul(x).Mul(y.StopGradient())
	}, nil, nil)
	second := vjp(t, vjp(t, p, "out", "x"), "d.x", "x", "y")
	out := run(t, second, tensors{
		"x": reference.Float(5), "y": reference.Float(2), "d.out": reference.Float(1),
		"d.d.x": reference.Float(1),
	})
	if got := out["d.x"].Scalar(); got != 6*5*2 {
		t.Errorf("second derivative of 2x³ at 5 is %v", got)
	}
	if got := out["d.y"].Scalar(); got != 0 {
		t.Errorf("a stopped input has the gradient %v", got)
	}
}

func TestErrors(t *testing.T) {
	b := program.NewBuilder("p")
	x := b.Input("x", program.FloatType(2, 2))
	n := b.Input("n", program.Type{DType: program.Int})
	b.Output("q", x.Tanh().QR())
	b.Output("fine", x.Add(x.StopGradient().EighVectors()))
	b.Output("codes", n)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	collision := program.NewBuilder("c")
	c := collision.Input("d.y", program.FloatType())
	collision.Output("y", c)
	pc, err := collision.Build()
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		p      *program.Program
		output string
		wrt    []string
		want   string
	}{
		{p, "nothing", []string{"x"}, `program "p" has no output "nothing"`},
		{p, "codes", []string{"x"}, `program "p": output "codes" is int: only floats have gradients`},
		{p, "fine", []string{"y"}, `program "p" has no input "y"`},
		{p, "fine", []string{"n"}, `program "p": input "n" is int: only floats have gradients`},
		{p, "fine", []string{"x", "x"}, `program "p": input "x" is named twice`},
		{p, "fine", nil, `program "p": got no inputs to differentiate with respect to`},
		{p, "q", []string{"x"},
			`program "p": %3 = qr: a matrix factorization has no gradient: put stop_gradient around it`},
		{pc, "y", []string{"d.y"},
			`program "c": the input "d.y" has the name of the cotangent of output "y"`},
	}
	for _, c := range cases {
		if _, err := autodiff.VJP(c.p, c.output, c.wrt...); err == nil || err.Error() != c.want {
			t.Errorf("VJP: got %v, want %s", err, c.want)
		}
		if _, err := autodiff.Split(c.p, []string{c.p.Outputs[0].Name}, c.output, c.wrt...); err == nil ||
			err.Error() != c.want {
			t.Errorf("Split: got %v, want %s", err, c.want)
		}
	}
	if _, err := autodiff.VJP(p, "fine", "x"); err != nil {
		t.Errorf("a stopped factorization: %v", err)
	}
	if _, err := autodiff.Split(p, nil, "fine", "x"); err == nil ||
		!strings.Contains(err.Error(), "want at least one output of the forward pass") {
		t.Errorf("Split without outputs: %v", err)
	}
	if _, err := autodiff.Split(p, []string{"nothing"}, "fine", "x"); err == nil ||
		!strings.Contains(err.Error(), `no output "nothing"`) {
		t.Errorf("Split with an unknown output: %v", err)
	}
	other := program.NewBuilder("other")
	other.Output("d.x", other.Input("x", program.FloatType(7)).
		Add(other.Input("dy", program.FloatType(7))))
	otherShape, err := other.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := autodiff.SplitBy(p, []string{"fine"}, otherShape, "x"); err == nil ||
		!strings.Contains(err.Error(), `the cotangent "x" must be an input of "other", and not of "p"`) {
		t.Errorf("SplitBy without a cotangent: %v", err)
	}
	if _, err := autodiff.SplitBy(p, []string{"fine"}, otherShape, "dy"); err == nil ||
		!strings.Contains(err.Error(), `input "x" is float[7], but`) {
		t.Errorf("SplitBy with another shape: %v", err)
	}
}

// TestTooLarge differentiates a program whose gradient needs a larger constant than programs may
// have: an error that says so.
func TestTooLarge(t *testing.T) {
	b := program.NewSimplifier("large")
	x := b.Input("x", program.FloatType(1<<20, 1))
	wide := x.Concatenate(1, x).Broadcast([]int{1 << 20, 2, 1 << 12}, []int{0, 1})
	b.Output("y", wide.Exp().At(2, 0, 1).SumAll())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	const want = "has more than 2147483647 elements"
	if _, err := autodiff.VJP(p, "y", "x"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

func TestLongNames(t *testing.T) {
	b := program.NewBuilder(strings.Repeat("n", program.MaxName))
	b.Output("y", b.Input("x", program.FloatType()).Exp())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	vjp(t, p, "y", "x")
	if _, err := autodiff.Split(p, []string{"y"}, "y", "x"); err != nil {
		t.Error(err)
	}
}
