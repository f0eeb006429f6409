package sdktest

import (
	"maps"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// Initial values may follow from statistics of the columns of both operands of a product. Those of
// a site's own operand are computed here from the tensor that it is initialised from. Of the other
// operand there is a matrix for each length of rows; an activation has outliers in some columns, as
// those of language models.

// otherRows is the number of rows of the other operand. Every outlierEvery-th column of an
// activation is outlierFactor times as large.
const (
	otherRows     = 24
	outlierEvery  = 16
	outlierFactor = 20
)

func statisticsOf(role sdk.Role) (largest, mean string) {
	if role == sdk.RoleActivation {
		return spec.InputActivationsMax, spec.InputActivationsMean
	}
	return spec.InputWeightsMax, spec.InputWeightsMean
}

func otherRole(role sdk.Role) sdk.Role {
	if role == sdk.RoleActivation {
		return sdk.RoleWeight
	}
	return sdk.RoleActivation
}

func operand(role sdk.Role, d int) []float64 {
	x := normal(31, otherRows, d)
	if role == sdk.RoleActivation {
		for i := range x {
			if i%d%outlierEvery == outlierEvery/2 {
				x[i] *= outlierFactor
			}
		}
	}
	return x
}

func columns(role sdk.Role, x []float64, d int) map[string]reference.Tensor {
	most, mean := make([]float64, d), make([]float64, d)
	for i, v := range x {
		most[i%d] = max(most[i%d], math.Abs(v))
		mean[i%d] += math.Abs(v) / float64(len(x)/d)
	}
	forMost, forMean := statisticsOf(role)
	return map[string]reference.Tensor{forMost: reference.Floats(rounded(most), 1, d), forMean: reference.Floats(rounded(mean), 1, d)}
}

// initialInputs are those of a program of initial values for a sample of the tensor, beside another
// operand.
func (s *siteAnswer) initialInputs(p *program.Program, sample, other []float64) map[string]reference.Tensor {
	d := s.shape[len(s.shape)-1]
	all := columns(s.asked, sample, d)
	maps.Copy(all, columns(otherRole(s.asked), other, d))
	inputs := map[string]reference.Tensor{spec.InputX: reference.Floats(sample, s.shape...)}
	for _, in := range p.Inputs[1:] {
		inputs[in.Name] = reference.Floats(all[in.Name].Floats, in.Type.Shape...)
	}
	return inputs
}

func (q *quantizerRun) checkColumns(t *trial) {
	q.everywhere(func(_ *trial, in *instance, x []float64) {
		if !in.Calibrated() || in.evaluates {
			return
		}
		t.announce()
		d := in.shape[1]
		for _, other := range otherOperands(otherRole(in.asked), d) {
			for _, sample := range [][]float64{x, otherColumn(x, d, 0)} {
				t.run(func() {
					from := in.beside(sample, other)
					for name, v := range inOrder(from.initialValues()) {
						t.finite(in.at(), "initial "+name, v.Type.Shape, v.Floats)
					}
					in.finite(sample, "value with the initial values", from.quantize(sample).value)
				})
			}
		}
	})(t)
	q.onOracle(func(_ *trial, in *instance, x []float64) {
		byDefault := len(in.variant.changed) == 0 // with other settings they may not count
		if in.Calibrated() && !in.evaluates && byDefault && len(x) >= enoughEntries && in.shape[1] > 1 {
			for _, p := range []*program.Program{in.Init, in.InitState} {
				if p != nil {
					in.dependsOnColumns(p, x)
				}
			}
		}
	})(t)
	q.checkProduct(t)
}

func otherOperands(role sdk.Role, d int) [][]float64 {
	x := operand(role, d)
	return [][]float64{x, otherColumn(x, d, 0), make([]float64, len(x)), scaled(0x1p20, x), scaled(0x1p-30, x), otherColumn(x, d, 0x1p30)}
}

func otherColumn(x []float64, d int, c float64) []float64 {
	x = slices.Clone(x)
	for i := d / 2; i < len(x); i += d {
		x[i] *= c
	}
	return x
}

func (in *instance) beside(sample, other []float64) *instance {
	return in.siteAnswer.beside(in.t, in.m, sample, other)
}

func (in *instance) initialValues() map[string]reference.Tensor {
	all := maps.Clone(in.trained)
	if all == nil {
		all = map[string]reference.Tensor{}
	}
	maps.Copy(all, in.kept)
	return all
}

// dependsOnColumns fails unless each of the statistics that a program of initial values takes
// changes what it returns.
func (in *instance) dependsOnColumns(p *program.Program, x []float64) {
	d := in.shape[1]
	inputs := in.initialInputs(p, x, operand(otherRole(in.asked), d))
	base := in.run(p, inputs)
	for _, input := range p.Inputs[1:] {
		changed := maps.Clone(inputs)
		changed[input.Name] = reference.Floats(otherColumn(inputs[input.Name].Floats, d, 100), input.Type.Shape...)
		in.t.announce()
		same := true
		for name, v := range in.run(p, changed) {
			same = same && slices.Equal(v.Floats, base[name].Floats)
		}
		if same {
			in.t.failf(in.at(), "the initial values are the same with other numbers in %s", input.Name)
		}
	}
}

// productRows and productWidth are the shape of the operands of a product whose error is measured.
// What statistics are for is that the error is smaller; maxLoss is the factor by which it may be
// larger than with statistics that are the same for all columns.
const (
	productRows  = 32
	productWidth = 256
	maxLoss      = 1.2
)

// checkProduct multiplies an activation that has outliers in some columns with a weight, both as
// they are quantized with the default settings. Statistics that are used the wrong way around make
// the outliers larger.
func (q *quantizerRun) checkProduct(t *trial) {
	var weight, activation *siteAnswer
	calibrated := false
	for role, s := range map[sdk.Role]**siteAnswer{sdk.RoleWeight: &weight, sdk.RoleActivation: &activation} {
		if answer, err := q.ask(q.space.singles[0], role, productRows, productWidth); err == nil {
			*s, calibrated = answer, calibrated || answer.Calibrated()
		}
	}
	if !calibrated {
		return
	}
	x := operand(sdk.RoleActivation, productWidth)
	x = slices.Concat(x, x)[:productRows*productWidth]
	w := normal(33, productRows, productWidth)
	t.run(func() {
		t.announce()
		informed, flat := productError(t, activation, weight, x, w, false), productError(t, activation, weight, x, w, true)
		t.notef("the error of a product is %.3g of its norm, with the same statistics for all columns %.3g", informed, flat)
		if !(informed <= maxLoss*flat) {
			t.failf(example{}, "an activation with outliers in some columns, times a weight: the error is %.3g of the product's norm, and %.3g with the same statistics for all columns: what is done with them makes it worse", informed, flat)
		}
	})
}

// productError is the error of x·wᵀ, relative to its norm, where sites that there are quantize the
// operands. With flat, they are initialised with statistics that are the same for all columns.
func productError(t *trial, activation, weight *siteAnswer, x, w []float64, flat bool) float64 {
	quantized := func(s *siteAnswer, own, other []float64) []float64 {
		if s == nil {
			return own
		}
		if !flat {
			return s.beside(t, Oracle{}, own, other).quantize(own).value
		}
		in := &instance{siteAnswer: s, t: t, m: Oracle{}}
		level := func(p *program.Program) map[string]reference.Tensor {
			if p == nil {
				return nil
			}
			inputs := s.initialInputs(p, own, other)
			for name, v := range inputs {
				if name != spec.InputX {
					inputs[name] = reference.Floats(full(largest(v.Floats), len(v.Floats)), v.Type.Shape...)
				}
			}
			return inSingle(in.run(p, inputs))
		}
		in.trained, in.kept = level(s.Init), level(s.InitState)
		return in.quantize(own).value
	}
	want := products(x, w, productWidth)
	return relativeError(products(quantized(activation, x, w), quantized(weight, w, x), productWidth), want)
}

// products is x·wᵀ for matrices with rows of a length.
func products(x, w []float64, d int) (out []float64) {
	for a := range slices.Chunk(x, d) {
		for b := range slices.Chunk(w, d) {
			sum := 0.0
			for i := range a {
				sum += a[i] * b[i]
			}
			out = append(out, sum)
		}
	}
	return out
}
