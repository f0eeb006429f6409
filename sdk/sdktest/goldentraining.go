package sdktest

import (
	"fmt"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
)

// goldenTraining is a case of an optimizer, which has the parameter after every step.
type goldenTraining struct {
	*tensorAnswer
	goldenCase
	x, gradients, rates golden.Array
	decay               float64
}

// goldenCase trains as the case says, on every machine.
func (o *optimizerRun) goldenCase(c goldenCase) {
	v, err := c.kind.resolve(o.about, o.settings, c, nil)
	c.must(err)
	g := goldenTraining{goldenCase: c, rates: c.array(c.inputs, "lrs"), x: c.array(c.inputs, "x0"), gradients: c.array(c.inputs, "grads")}
	g.decay, err = golden.Float(c.params[decayKey])
	c.must(err)
	if c.params["wd_mode"] == "l2" {
		g.decay = 0
	}
	want := c.array(c.expected, "x")
	if n := len(g.rates.Data); len(g.gradients.Data) != n*len(g.x.Data) || len(want.Data) != len(g.gradients.Data) {
		c.must(fmt.Errorf("it has %d rates, %v gradients and expects %v", n, g.gradients.Shape, want.Shape))
	}
	g.tensorAnswer, err = o.ask(v, sdk.TensorMatrix, g.x.Shape...)
	c.must(err)
	if !g.Accepts {
		c.must(fmt.Errorf("the plugin declines the tensor"))
	}
	spread, base := g.spread(), goldenCloseness*golden.Largest(want.Data)
	for _, m := range o.machines {
		got := g.run(m, false, g.x.Data, g.gradients.Data)
		c.within(g.on(m), "x", got, want, false, func(i int) float64 { return base + amplification*spread[i] })
	}
}

// run plays the host's part in every step: x ← (1 − αω)·x, then the update u, then x ← x − α·u; or
// the decay last. It returns x after every step.
func (g goldenTraining) run(m Machine, single bool, x, gradients []float64) (all []float64) {
	r := g.untrained(g.t, m, x)
	g.must(r.init())
	r.single = r.single || single
	for i, rate := range g.rates.Data {
		keep := 1 - rate*g.decay
		if !g.kind.decayLast {
			x = scaled(keep, x)
		}
		u, err := r.step(x, gradients[i*len(x):(i+1)*len(x)])
		g.must(err)
		x = added(x, -rate, u)
		if g.kind.decayLast && i > 0 { // the published code returns from its first call before the decay
			x = scaled(keep, x)
		}
		all = append(all, x...)
	}
	return all
}

// spread is how far each element of the path moves with noise in the start and in
// the gradients, and with a state in binary32.
func (g goldenTraining) spread() []float64 {
	base := g.run(Oracle{}, false, g.x.Data, g.gradients.Data)
	out := make([]float64, len(base))
	for i := range noises + 1 {
		x, gradients := g.x.Data, g.gradients.Data
		if i > 0 {
			x, gradients = withNoise(x, uint64(i)), withNoise(gradients, uint64(i))
		}
		for j, v := range g.run(Oracle{}, i == 0, x, gradients) {
			out[j] = max(out[j], golden.Distance(v, base[j]))
		}
	}
	return out
}
