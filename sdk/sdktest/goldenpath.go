package sdktest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/goldenfile"
	"github.com/cage-qat/cage/sdk"
)

func (o *optimizerRun) goldenSteps(file []byte) []step {
	return []step{goldenStep(file, sdk.KindOptimizer, func(t *trial, k goldenKind, c goldenCase) {
		if err := o.goldenCase(t, k, c); err != nil {
			t.failf(place{}, "case %s: %v", c.id, err)
		}
	})}
}

// goldenPath is a case of an optimizer: the parameter after every step.
type goldenPath struct {
	*tensor
	x, gradients goldenfile.Tensor
	rates        []float64
	decay        float64
	decayLast    bool
}

func (o *optimizerRun) goldenCase(t *trial, k goldenKind, c goldenCase) error {
	v, err := k.resolve(o.about, o.settings, c, nil)
	if err != nil {
		return err
	}
	g := goldenPath{decayLast: k.decayLast}
	want, err := g.read(c)
	if err != nil {
		return err
	}
	if g.tensor, err = o.ask(v, sdk.TensorMatrix, g.x.Shape...); err != nil {
		return err
	}
	if !g.Accepts {
		return errors.New("the plugin declines the tensor")
	}
	spread, err := g.spread()
	if err != nil {
		return err
	}
	for _, m := range o.machines {
		got, err := g.run(m, false, g.x.Data, g.gradients.Data)
		if err != nil {
			return err
		}
		base := goldenCloseness * largest(want.Data)
		t.within(g.place.on(m), "case "+c.id+": x", want.Shape, got, want.Data, func(i int) float64 {
			if m == (oracle{}) {
				return c.tolerance.Abs + c.tolerance.Rel*abs(want.Data[i])
			}
			return base + amplification*spread[i]
		})
	}
	return nil
}

func (g *goldenPath) read(c goldenCase) (want goldenfile.Tensor, err error) {
	rates, ratesErr := c.tensor(c.inputs, "lrs")
	var xErr, gradErr, decayErr error
	g.x, xErr = c.tensor(c.inputs, "x0")
	g.gradients, gradErr = c.tensor(c.inputs, "grads")
	if g.decay, decayErr = goldenfile.Float(c.params[decayKey]); c.params["wd_mode"] == "l2" {
		g.decay = 0
	}
	g.rates = slices.Clone(rates.Data)
	want, err = c.tensor(c.expected, "x")
	if err = errors.Join(ratesErr, xErr, gradErr, decayErr, err); err != nil {
		return want, err
	}
	if n := len(g.rates); len(g.gradients.Data) != n*len(g.x.Data) || len(want.Data) != len(g.gradients.Data) {
		return want, fmt.Errorf("it has %d rates, %v gradients and expects %v", n, g.gradients.Shape, want.Shape)
	}
	return want, nil
}

// run takes the host's part: x ← (1 − αω)·x, u, x ← x − α·u; or the decay last.
func (g *goldenPath) run(m Machine, single bool, x, gradients []float64) ([]float64, error) {
	p, err := g.start(m, x)
	if err != nil {
		return nil, err
	}
	p.single = p.single || single
	var all []float64
	for i, rate := range g.rates {
		keep := 1 - rate*g.decay
		if !g.decayLast {
			x = scaled(keep, x)
		}
		u, err := p.step(x, gradients[i*len(x):(i+1)*len(x)])
		if err != nil {
			return nil, err
		}
		x = difference(x, scaled(rate, u))
		if g.decayLast && i > 0 { // the published code leaves its first call before the decay
			x = scaled(keep, x)
		}
		all = append(all, x...)
	}
	return all, nil
}

// spread is how far each element of the path moves with noise in the start and in
// the gradients, and with a state in binary32.
func (g *goldenPath) spread() ([]float64, error) {
	base, err := g.run(oracle{}, false, g.x.Data, g.gradients.Data)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(base))
	for i := range noises + 1 {
		x, gradients := g.x.Data, g.gradients.Data
		if i > 0 {
			x, gradients = withNoise(x, uint64(i)), withNoise(gradients, uint64(i))
		}
		other, err := g.run(oracle{}, i == 0, x, gradients)
		if err != nil {
			return nil, err
		}
		for j, v := range base {
			out[j] = max(out[j], distance(other[j], v))
		}
	}
	return out, nil
}
