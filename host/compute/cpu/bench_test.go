package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/testing/testrows"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// quest returns the forward pass of 4-bit QuEST, as its plugin writes it, without the last rotation
// if rotated is set.
func quest(t testing.TB, n, columns, block int, rotated bool) *program.Program {
	t.Helper()
	b := program.NewBuilder("quest")
	z := b.Input("x", program.FloatType(n, columns)).Hadamard(block)
	sigma := z.Square().MeanRow().Sqrt()
	scale := sigma.IsFinite().Select(sigma.Scale(0.3386079357151849), b.Const(nan))
	r := z.Div(sigma.Eq(b.Const(0)).Select(b.Const(1), scale))
	clamped := r.Clip(-8, 7)
	value := clamped.Round().Mul(scale)
	if !rotated {
		value = value.Hadamard(block)
	}
	b.Output("value", value)
	b.Output("mask", r.Sub(clamped).Abs().Le(b.Const(0.5)))
	return built(t, b)
}

// questBack returns the backward pass of quest.
func questBack(t testing.TB, n, columns, block int, rotated bool) *program.Program {
	t.Helper()
	b := program.NewBuilder("quest.backward")
	mask, dy := b.Input("mask", program.Type{DType: program.Bool, Shape: []int{n, columns}}),
		b.Input("dy", program.FloatType(n, columns))
	if !rotated {
		dy = dy.Hadamard(block)
	}
	b.Output("dx", mask.Select(dy, b.Const(0)).Hadamard(block))
	return built(t, b)
}

func built(t testing.TB, b *program.Builder) *program.Program {
	t.Helper()
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func BenchmarkQuest(b *testing.B) {
	for _, size := range [][3]int{{2048, 256, 128}, {2048, 704, 64}, {4096, 512, 128}} {
		n, columns, block := size[0], size[1], size[2]
		for name, p := range map[string]*program.Program{
			"forward":       quest(b, n, columns, block, true),
			"forward.whole": quest(b, n, columns, block, false),
			"backward":      questBack(b, n, columns, block, true),
		} {
			for _, at := range []passes.Storage{passes.Float32, passes.BFloat16} {
				b.Run(fmt.Sprintf("%dx%d/%s/%s", n, columns, name, at), func(b *testing.B) {
					benchmark(b, p, n, n*columns, map[string]passes.Storage{"x": at, "value": at, "dy": at,
						"dx": at})
				})
			}
		}
	}
}

// mxfp4 returns the forward pass of MXFP4, as its plugin writes it.
func mxfp4(t testing.TB, n, columns int) *program.Program {
	t.Helper()
	b := program.NewBuilder("mxfp4")
	blocks := microscaling.NewBlocks([]int{n, columns}, 32)
	v := blocks.Split(b.Input("x", program.FloatType(n, columns)))
	highest := v.Abs().MaxRow()
	exponent := highest.Logb().Shift(-2).Clip(-127, 127)
	known := func(e program.Value) program.Value {
		return highest.IsFinite().Select(b.Const(1).Ldexp(e), b.Const(nan))
	}
	code := microscaling.RoundE2M1(v.Mul(known(exponent.Neg())), microscaling.TiesEven)
	b.Output("value", blocks.Join(code.Mul(known(exponent))))
	return built(t, b)
}

// q2 returns the forward pass of absmax's signed grid in 2 bits and groups of 64: GGUF's Q2_0.
func q2(t testing.TB, n, columns int) *program.Program {
	t.Helper()
	b := program.NewBuilder("q2")
	x := b.Input("x", program.FloatType(n, columns))
	v := x.Reshape(n, columns/64, 64)
	amax := v.Abs().MaxRow()
	zero := b.Const(0)
	early := b.Iota(program.Type{DType: program.Int, Shape: v.Type().Shape}, 2).Neg().
		Convert(program.Float).Shift(64)
	up, down := v.Eq(amax).Select(early, zero).MaxRow(), v.Eq(amax.Neg()).Select(early, zero).MaxRow()
	step := up.Lt(down).Select(amax.Neg(), amax).Div(b.Const(-2))
	inverse := step.Abs().Le(b.Const(0x1p-25)).Select(zero, b.Const(1).Div(step))
	codes := v.Mul(inverse).Shift(2.5).Floor().Shift(-2).Clip(-2, 1)
	b.Output("value", codes.Mul(step).Reshape(n, columns))
	return built(t, b)
}

// gated returns SwiGLU followed by QuEST.
func gated(t testing.TB, n, columns int) *program.Program {
	t.Helper()
	b := program.NewBuilder("gated")
	x, y := b.Input("x", program.FloatType(n, columns)), b.Input("y", program.FloatType(n, columns))
	gate := x.Div(x.Neg().Exp().Shift(1)).Mul(y)
	b.Output("value", transform.Inline(b, quest(t, n, columns, 128, true), gate)["value"])
	return built(t, b)
}

// normed returns a norm with a gain, followed by QuEST.
func normed(t testing.TB, n, columns int) *program.Program {
	t.Helper()
	b := program.NewBuilder("normed")
	x, gain := b.Input("x", program.FloatType(n, columns)),
		b.Input("gain", program.FloatType(1, columns))
	scale := b.Const(1).Div(x.Square().MeanRow().Shift(1e-6).Sqrt())
	b.Output("value", transform.Inline(b, quest(t, n, columns, 128, true), x.Mul(scale).
		Mul(gain))["value"])
	return built(t, b)
}

// losses returns the log-sum-exp of each row of logits and the gradient of its cross-entropy loss.
func losses(t testing.TB, n, columns int) *program.Program {
	t.Helper()
	b := program.NewBuilder("losses")
	logits, target := b.Input("x", program.FloatType(n, columns)),
		b.Input("target", program.Type{DType: program.Int, Shape: []int{n, 1}})
	highest := logits.MaxRow()
	total := logits.Sub(highest).Exp().ReduceSum(1).Reshape(n, 1).Log().Add(highest)
	isTarget := b.Iota(program.Type{DType: program.Int, Shape: []int{n, columns}}, 1).Eq(target)
	b.Output("total", total)
	b.Output("value", logits.Sub(total).Exp().Sub(isTarget.Select(b.Const(1), b.Const(0))))
	return built(t, b)
}

// trained writes the quantizer of a training step. Its outputs are the value, the mask of its
// gradient, and the value's factors.
func trained(b *program.Builder, x program.Value, n, columns int) {
	z := x.Hadamard(columns & -columns)
	sigma := z.Square().MeanRow().Sqrt()
	scale := sigma.IsFinite().Select(sigma.Scale(0.3386079357151849), b.Const(nan))
	r := z.Div(sigma.Eq(b.Const(0)).Select(b.Const(1), scale))
	clamped := r.Clip(-8, 7)
	integers := clamped.Round()
	b.Output("value", integers.Mul(scale))
	b.Output("mask", r.Sub(clamped).Abs().Le(b.Const(0.5)))
	b.Output("integers", integers)
	b.Output("scale", scale)
}

func trainedQuest(t testing.TB, n, columns int) *program.Program {
	t.Helper()
	b := program.NewBuilder("trained.quest")
	trained(b, b.Input("x", program.FloatType(n, columns)), n, columns)
	return built(t, b)
}

// trainedGate returns SwiGLU followed by the quantizer of a training step.
func trainedGate(t testing.TB, n, columns int) *program.Program {
	t.Helper()
	b := program.NewBuilder("trained.gate")
	x, y := b.Input("x", program.FloatType(n, columns)), b.Input("y", program.FloatType(n, columns))
	trained(b, x.Mul(b.Const(1).Div(x.Neg().Exp().Shift(1))).Mul(y), n, columns)
	return built(t, b)
}

// trainedNorm returns a norm with a gain, followed by the quantizer of a training step.
func trainedNorm(t testing.TB, n, columns int) *program.Program {
	t.Helper()
	b := program.NewBuilder("trained.norm")
	x, gain := b.Input("residual", program.FloatType(n, columns)),
		b.Input("gain", program.FloatType(1, columns))
	trained(b, x.Mul(b.Const(1).Div(x.Square().MeanRow().Shift(1e-6).Sqrt())).Mul(gain), n, columns)
	return built(t, b)
}

// gateBack returns the backward pass of SwiGLU followed by QuEST.
func gateBack(t testing.TB, n, columns int) *program.Program {
	t.Helper()
	b := program.NewBuilder("gate.backward")
	x, y := b.Input("x", program.FloatType(n, columns)), b.Input("y", program.FloatType(n, columns))
	mask, dy := b.Input("mask", program.Type{DType: program.Bool, Shape: []int{n, columns}}),
		b.Input("dy", program.FloatType(n, columns))
	d := mask.Select(dy, b.Const(0)).Hadamard(columns & -columns)
	s := b.Const(1).Div(x.Neg().Exp().Shift(1))
	b.Output("dx", d.Mul(y).Mul(s.Mul(x.Mul(b.Const(1).Sub(s)).Shift(1))))
	b.Output("dgate", d.Mul(x.Mul(s)))
	return built(t, b)
}

// BenchmarkStep measures programs of a training step in bfloat16.
func BenchmarkStep(b *testing.B) {
	const n = 512
	stored := map[string]passes.Storage{"x": passes.BFloat16, "y": passes.BFloat16,
		"dy": passes.BFloat16, "value": passes.BFloat16, "integers": passes.Int8, "dx": passes.BFloat16,
		"dgate": passes.BFloat16}
	for _, c := range []struct {
		name    string
		columns int
		write   func(t testing.TB, n, columns int) *program.Program
	}{{"gate", 768, trainedGate}, {"gate.backward", 768, gateBack}, {"norm", 256, trainedNorm},
		{"quest.backward", 256,
			func(t testing.TB, n, columns int) *program.Program {
				return questBack(t, n, columns, 256, true)
			}}} {
		b.Run(c.name, func(b *testing.B) {
			benchmark(b, c.write(b, n, c.columns), n, n*c.columns, stored)
		})
	}
}

func BenchmarkPrograms(b *testing.B) {
	const n = 2048
	for name, write := range map[string]func(t testing.TB, n,
		columns int) *program.Program{"mxfp4": mxfp4, "q2": q2, "gated": gated, "normed": normed,
		"losses": losses} {
		columns := map[string]int{"losses": 8192}[name]
		if columns == 0 {
			columns = 512
		}
		b.Run(name, func(b *testing.B) {
			benchmark(b, write(b, n, columns), n, n*columns,
				map[string]passes.Storage{"x": passes.BFloat16, "y": passes.BFloat16, "value": passes.BFloat16})
		})
	}
}

// benchmark runs a program on one goroutine, and reports the time of the fastest run.
func benchmark(
	b *testing.B, p *program.Program, n, elements int, stored map[string]passes.Storage,
) {
	b.Helper()
	k, err := cpu.Compile(p, n, stored)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var in, out []any
	for _, i := range p.Inputs {
		in = append(in, testrows.ToMemory(random(rng, i.Type), stored[i.Name]))
	}
	for _, o := range p.Outputs {
		out = append(out, testrows.Empty(p.TypeOf(o.Value), stored[o.Name]))
	}
	best := time.Duration(math.MaxInt64) // other load on the machine changes it least
	for b.Loop() {
		start := time.Now()
		if err := k.Run(in, out, testrows.InTurn); err != nil {
			b.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(best.Nanoseconds())/float64(elements), "best-ns/element")
}
