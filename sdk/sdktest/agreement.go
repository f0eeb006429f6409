package sdktest

import (
	"math"
	"math/rand/v2"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// How a machine in binary32 is compared with the oracle. An element may differ by
// closeness times the largest magnitude of its tensor, the error of a sum of a
// thousand terms, and by amplification times what the oracle itself makes of noise
// in the inputs. So an element on a rounding boundary may go either way, as it
// would in training, and an ill-conditioned one is as free as it is ill-conditioned.
const (
	closeness     = 4e-6
	amplification = 16
	noise         = 0x1p-22 // relative: four units in the last place of binary32
	noises        = 6
)

// expectation is what the oracle gives for a program and inputs, and how far each
// element moves with noise.
type expectation struct {
	outputs map[string]reference.Tensor
	single  map[string]reference.Tensor // in binary32
	spread  map[string][]float64
}

// expect runs p on the oracle as it is, with noise in its float inputs, and with
// each result rounded to binary32. The number of the step is never noisy.
func expect(p *program.Program, inputs map[string]reference.Tensor) (expectation, error) {
	base, err := reference.Run(p, inputs)
	if err != nil {
		return expectation{}, err
	}
	e := expectation{outputs: base, spread: map[string][]float64{}}
	for name, v := range base {
		e.spread[name] = make([]float64, v.Len())
	}
	if e.single, err = reference.Run32(p, inputs); err != nil {
		return expectation{}, err
	}
	e.widen(e.single)
	for i := range noises {
		out, err := reference.Run(p, noisy(inputs, uint64(i)))
		if err != nil {
			return expectation{}, err
		}
		e.widen(out)
	}
	return e, nil
}

// widen takes another result into the spread.
func (e expectation) widen(out map[string]reference.Tensor) {
	for name, base := range e.outputs {
		spread, other := e.spread[name], out[name].Float64s()
		for i, v := range base.Float64s() {
			spread[i] = max(spread[i], distance(other[i], v))
		}
	}
}

// noisy changes each float input but the step.
func noisy(inputs map[string]reference.Tensor, seed uint64) map[string]reference.Tensor {
	out := make(map[string]reference.Tensor, len(inputs))
	for name, in := range inputs {
		if in.Type.DType == program.Float && name != sdk.InputStep {
			in = reference.Floats(withNoise(in.Floats, seed), in.Type.Shape...)
		}
		out[name] = in
	}
	return out
}

func withNoise(data []float64, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, uint64(len(data))))
	out := make([]float64, len(data))
	for i, v := range data {
		out[i] = v * (1 + noise*(2*r.Float64()-1))
	}
	return out
}

// agree compares the outputs of another machine with the expectation.
func (t *trial) agree(p place, what string, e expectation, got map[string]reference.Tensor) {
	for name, want := range e.outputs {
		data := want.Float64s()
		base := 0.0
		if want.Type.DType == program.Float {
			base = closeness * largest(data)
		}
		spread := e.spread[name]
		t.within(p, what+name, want.Type.Shape, got[name].Float64s(), data, func(i int) float64 {
			return base + amplification*spread[i]
		})
	}
}

// steady reports whether an element of an output stays where it is under noise, up
// to rounding.
func (e expectation) steady(name string, i int) bool {
	out := e.outputs[name]
	if out.Type.DType != program.Float {
		return e.spread[name][i] == 0
	}
	return e.spread[name][i] <= 256*noise*largest(out.Floats)
}

// largest is the largest finite magnitude, 0 when there is none.
func largest(data []float64) float64 {
	most := 0.0
	for _, v := range data {
		if a := math.Abs(v); a > most && !math.IsInf(a, 0) {
			most = a
		}
	}
	return most
}

// comparison runs programs on machines and on the oracle.
type comparison struct {
	t        *trial
	place    place
	machines []Machine
}

// compare fails unless every machine agrees with the oracle on all outputs of p.
func (c comparison) compare(what string, p *program.Program, inputs map[string]reference.Tensor) {
	e, err := expect(p, inputs)
	if !c.t.ok(c.place, err) {
		return
	}
	for _, m := range c.machines {
		out, err := m.Run(p, inputs)
		if c.t.ok(c.place.on(m), err) {
			c.t.agree(c.place.on(m), what, e, out)
		}
	}
}
