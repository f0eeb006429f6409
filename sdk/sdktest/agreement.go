package sdktest

import (
	"math/rand/v2"

	"github.com/cage-qat/cage/sdk/answer"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// These constants say how a machine in binary32 is compared with the oracle. An element may
// differ by closeness times the largest magnitude of its tensor, which is the error of a sum
// of a thousand terms, plus amplification times the distance that it moves on the oracle
// when there is noise in the inputs. So an element on a rounding boundary may go either way,
// as it would in training, and an ill-conditioned one may differ by more than others.
const (
	closeness     = 4e-6
	amplification = 16
	noise         = 0x1p-22 // relative: four units in the last place of binary32
	noises        = 6
)

// expectation is the oracle's result for a program and inputs, and how far each element
// moves with noise.
type expectation struct {
	outputs map[string]reference.Tensor
	single  map[string]reference.Tensor // in binary32
	spread  map[string][]float64
}

// expect runs p on the oracle with the inputs as they are, with each result rounded to
// binary32, and with noise in the float inputs. The number of the step never gets noise.
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

// widen extends the spread so that it covers another result.
func (e expectation) widen(out map[string]reference.Tensor) {
	for name, base := range e.outputs {
		spread, other := e.spread[name], out[name].Float64s()
		for i, v := range base.Float64s() {
			spread[i] = max(spread[i], distance(other[i], v))
		}
	}
}

// noisy adds noise to each float input except the step.
func noisy(inputs map[string]reference.Tensor, seed uint64) map[string]reference.Tensor {
	out := make(map[string]reference.Tensor, len(inputs))
	for name, in := range inputs {
		if in.Type.DType == program.Float && name != answer.InputStep {
			in = reference.Floats(withNoise(in.Floats, seed), in.Type.Shape...)
		}
		out[name] = in
	}
	return out
}

func withNoise(data []float64, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, uint64(len(data))))
	return mapped(data, func(v float64) float64 { return v * (1 + noise*(2*r.Float64()-1)) })
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

// compare fails unless every machine agrees with the oracle on all outputs of p.
func (t *trial) compare(on example, machines []Machine, what string, p *program.Program, inputs map[string]reference.Tensor) {
	e, err := expect(p, inputs)
	if !t.ok(on, err) {
		return
	}
	for _, m := range machines {
		got, err := m.Run(p, inputs)
		if !t.ok(on.on(m), err) {
			continue
		}
		for name, want := range e.outputs {
			data, spread, base := want.Float64s(), e.spread[name], 0.0
			if want.Type.DType == program.Float {
				base = closeness * largest(data)
			}
			t.within(on.on(m), what+name, want.Type.Shape, got[name].Float64s(), data, func(i int) float64 {
				return base + amplification*spread[i]
			})
		}
	}
}
