package tile_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/update/tile"
	"github.com/cage-qat/cage/sdk/program"
)

// adam writes an update of AdamW, with the decoupled correction on request.
func adam(correct bool, shape ...int) *program.Program {
	b := program.NewBuilder("adam")
	tensor, scalar := program.FloatType(shape...), program.FloatType()
	x, g, q := b.Input("x", tensor), b.Input("g", tensor), b.Input("q", tensor)
	m, v := b.Input("m", tensor), b.Input("v", tensor)
	rate, lambda, clip, step := b.Input("rate", scalar), b.Input("lambda", scalar), b.Input("clip", scalar), b.Input("step", scalar)
	g = g.Mul(clip)
	m = m.Scale(0.9).Add(g.Scale(0.1))
	v = v.Scale(0.95).Add(g.Square().Scale(0.05))
	c1, c2 := step.Scale(-0.1).Expm1().Neg(), step.Scale(-0.05).Expm1().Neg()
	u := m.Div(v.Sqrt().Mul(c1.Div(c2.Sqrt())).Add(c1.Scale(1e-8)))
	keep := b.Const(1).Sub(rate.Scale(0.1))
	y := x.Mul(keep).Sub(u.Mul(rate))
	if correct {
		e := x.Sub(q)
		e = e.Square().Sum(len(shape)-1).SumAll().IsFinite().Select(e, b.Const(0))
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

// callOf makes the memory of a call, outputs in the place of inputs where names agree.
func callOf(k *tile.Kernel) tile.Call {
	rng := rand.New(rand.NewPCG(1, 1))
	p := k.Program()
	c := tile.Call{Kernel: k}
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

// BenchmarkAdam runs in one goroutine; the small tensors stay in the first cache.
func BenchmarkAdam(b *testing.B) {
	for _, correct := range []bool{false, true} {
		for _, n := range []int{2048, 1 << 18, 1 << 22} {
			b.Run(fmt.Sprintf("correct=%v/n=%d", correct, n), func(b *testing.B) {
				k := compile(b, adam(correct, n/64, 64))
				calls, r := []tile.Call{callOf(k)}, tile.NewRunner(1)
				b.SetBytes(int64(4 * n))
				for b.Loop() {
					if err := r.Run(calls); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
