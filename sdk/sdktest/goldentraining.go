package sdktest

import (
	"fmt"

	"github.com/cage-qat/cage/sdk"
)

// goldenTraining is a case of an optimizer, which has the parameter after every step.
type goldenTraining struct {
	*tensorAnswer
	goldenCase
	OptimizerValues
}

// goldenCase trains as the case says, on every machine.
func (o *optimizerRun) goldenCase(c goldenCase) {
	g := goldenTraining{goldenCase: c}
	var err error
	g.OptimizerValues, err = c.Optimizer(o.about)
	c.must(err)
	for _, a := range []Array{g.X, g.Gradients, g.Want, g.Rates} {
		c.must(a.check())
	}
	if n := len(g.Rates.Data); len(g.Gradients.Data) != n*len(g.X.Data) || len(g.Want.Data) != len(g.Gradients.Data) {
		c.must(fmt.Errorf("it has %d rates, %v gradients and expects %v", n, g.Gradients.Shape, g.Want.Shape))
	}
	v, err := o.goldenVariant(g.Settings)
	c.must(err)
	g.tensorAnswer, err = o.ask(v, sdk.TensorMatrix, g.X.Shape...)
	c.must(err)
	if !g.Accepts {
		c.must(fmt.Errorf("the plugin declines the tensor"))
	}
	spread, base := g.spread(), goldenCloseness*largest(g.Want.Data)
	for _, m := range o.machines {
		got := g.run(m, false, g.X.Data, g.Gradients.Data)
		c.within(g.on(m), "x", got, g.Want, false, func(i int) float64 { return base + amplification*spread[i] })
	}
}

// run plays the host's part in every step: x ← (1 − αω)·x, then the update u, then x ← x − α·u; or
// the decay last. It returns x after every step.
func (g goldenTraining) run(m Machine, single bool, x, gradients []float64) (all []float64) {
	r := g.untrained(g.t, m, x)
	g.must(r.init())
	r.single = r.single || single
	for i, rate := range g.Rates.Data {
		keep := 1 - rate*g.Decay
		if !g.DecayLast {
			x = scaled(keep, x)
		}
		u, err := r.step(x, gradients[i*len(x):(i+1)*len(x)])
		g.must(err)
		x = axpy(x, -rate, u)
		if g.DecayLast && i > 0 { // the published code returns from its first call before the decay
			x = scaled(keep, x)
		}
		all = append(all, x...)
	}
	return all
}

// spread is how far each element of the path moves with noise in the start and in
// the gradients, and with a state in binary32.
func (g goldenTraining) spread() []float64 {
	base := g.run(Oracle{}, false, g.X.Data, g.Gradients.Data)
	out := make([]float64, len(base))
	for i := range noises + 1 {
		x, gradients := g.X.Data, g.Gradients.Data
		if i > 0 {
			x, gradients = withNoise(x, uint64(i)), withNoise(gradients, uint64(i))
		}
		for j, v := range g.run(Oracle{}, i == 0, x, gradients) {
			out[j] = max(out[j], distance(v, base[j]))
		}
	}
	return out
}
