package main

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

var forms = []string{formPaper, formOfficial, formStableQAT}

// subject is one site with its settings on one machine.
type subject struct {
	m     plugintest.Bench
	site  sdk.Site
	built spec.Quantizer
}

func newSubject(
	t testing.TB, m plugintest.Bench, role sdk.Role, given map[string]any, shape ...int,
) subject {
	t.Helper()
	site := sdk.Site{Role: role, Name: "site", Shape: shape,
		Values: plugintest.Settings(t, lsq{}.Describe(), given)}
	built, err := sdk.BuildQuantizer(lsq{}, site)
	if err != nil {
		t.Fatal(err)
	}
	return subject{m, site, built}
}

// trained holds values of the trained parameters: one step, or one for each row, and an offset if
// the site has one.
type trained struct {
	step   []float64
	offset float64
}

func (s subject) initial(t testing.TB, x []float64) trained {
	t.Helper()
	out := s.m.Run(t, s.built.Init,
		map[string]reference.Tensor{spec.InputX: reference.Floats(x, s.site.Shape...)})
	v := trained{step: out[spec.TrainedPrefix+trainedStep].Float64s()}
	if hasOffset(s.site) {
		v.offset = out[spec.TrainedPrefix+trainedOffset].Scalar()
	}
	return v
}

func (s subject) inputs(x []float64, at trained) map[string]reference.Tensor {
	in := map[string]reference.Tensor{spec.InputX: reference.Floats(x, s.site.Shape...)}
	for _, p := range s.built.Trained {
		values := at.step
		if p.Name == trainedOffset {
			values = []float64{at.offset}
		}
		in[spec.TrainedPrefix+p.Name] = reference.Floats(values, p.Shape...)
	}
	return in
}

// quantize runs the program and, on its codes and scale, the unpack program, which must give the
// same value.
func (s subject) quantize(t testing.TB, x []float64, at trained) (value, codes, mask []float64) {
	t.Helper()
	out := s.m.Run(t, s.built.Program, s.inputs(x, at))
	value = out[spec.OutputValue].Float64s()
	packed := map[string]reference.Tensor{spec.OutputCodes: out[spec.OutputCodes],
		spec.OutputScale: out[spec.OutputScale]}
	unpacked := s.m.Run(t, s.built.Unpack, packed)[spec.OutputValue].Float64s()
	plugintest.Near(t, "unpacked", unpacked, value, 0)
	return value, out[spec.OutputCodes].Float64s(), out[spec.OutputMask].Float64s()
}

// gradient runs the reverse pass of the surrogate.
func (s subject) gradient(
	t testing.TB, x []float64, at trained, dy []float64,
) (dx []float64, d trained) {
	t.Helper()
	wrt := []string{spec.InputX}
	for _, p := range s.built.Trained {
		wrt = append(wrt, spec.TrainedPrefix+p.Name)
	}
	vjp, err := autodiff.VJP(s.built.Program, spec.OutputSurrogate, wrt...)
	if err != nil {
		t.Fatal(err)
	}
	in := s.inputs(x, at)
	in[autodiff.Prefix+spec.OutputSurrogate] = reference.Floats(dy, s.site.Shape...)
	out := s.m.Run(t, vjp, in)
	d.step = out[autodiff.Prefix+spec.TrainedPrefix+trainedStep].Float64s()
	if hasOffset(s.site) {
		d.offset = out[autodiff.Prefix+spec.TrainedPrefix+trainedOffset].Scalar()
	}
	return out[autodiff.Prefix+spec.InputX].Float64s(), d
}

// rounding bounds the error of a sum of a few hundred terms, relative to the largest.
func (s subject) rounding() float64 {
	if s.m.Double() {
		return 1e-13
	}
	return 2e-6
}

// formula is the algorithm of the papers, computed element by element in binary64.
type formula struct {
	qn, qp              float64
	official, inclusive bool
	gradientScale       float64
}

// element returns x̂, its code, whether x lies inside the bounds, and the factor of dx̂ in ds.
func (f formula) element(
	x, s, offset float64,
) (value, code float64, inside bool, deviation float64) {
	r := (x - offset) / s
	if f.official {
		clipped := math.Min(math.Max(r-0.5, -f.qn), f.qp)
		level := math.RoundToEven(clipped) + 0.5
		inside, deviation = clipped == r-0.5, level
		if inside {
			deviation = level - r
		}
		return level*s + offset, 2 * level, inside, deviation
	}
	switch {
	case f.inclusive && (r == -f.qn || r == f.qp):
		return r*s + offset, r, true, 0
	case r <= -f.qn:
		return -f.qn*s + offset, -f.qn, false, -f.qn
	case r >= f.qp:
		return f.qp*s + offset, f.qp, false, f.qp
	default:
		q := math.RoundToEven(r)
		return q*s + offset, q, true, q - r
	}
}

// gradient returns dx, ds for each step, and dβ; row is the number of elements that share a step.
func (f formula) gradient(
	x []float64, at trained, row int, dy []float64,
) (dx []float64, d trained) {
	d.step = make([]float64, len(at.step))
	for i := range x {
		_, _, inside, deviation := f.element(x[i], at.step[i/row], at.offset)
		dx = append(dx, 0)
		if inside {
			dx[i] = dy[i]
		} else {
			d.offset += f.gradientScale * dy[i]
		}
		d.step[i/row] += f.gradientScale * dy[i] * deviation
	}
	return dx, d
}

// unit returns the relative rounding error of a machine's numbers.
func unit(m plugintest.Bench) float64 {
	if m.Double() {
		return 0x1p-53
	}
	return 0x1p-24
}

// roundings bounds the errors of ds and dβ for the relative rounding error u. A sum may cancel, so
// the bound is proportional to the terms, not to the result. To first order in u, with rounded
// inputs, the errors are at most:
//
//	r = (x − β)/s         u·((|x| + |β|)/s + 3|r|)
//	round(r) − r          that of r, and u times the value
//	gs·dx̂·(round(r) − r)  that of round(r) − r, and 4u times the value (2 factors, 2 products)
//	a sum of n terms      those of the terms, and (n − 1)·u times each term
//
// The bound does not hold if r is so close to a bound, or to the middle of two levels, that its
// error changes a decision.
func (f formula) roundings(
	x []float64, at trained, row int, dy []float64, u float64,
) (bound trained) {
	bound.step = make([]float64, len(at.step))
	for i := range x {
		s := at.step[i/row]
		_, _, inside, deviation := f.element(x[i], s, at.offset)
		term := u * math.Abs(f.gradientScale*dy[i])
		bound.step[i/row] += term * float64(row+4) * math.Abs(deviation)
		if inside {
			bound.step[i/row] += term * (math.Abs(x[i]) + math.Abs(at.offset) +
				3*math.Abs(x[i]-at.offset)) / s
		} else {
			bound.offset += term * float64(len(x)+3)
		}
	}
	return bound
}

// within checks that |got − want| ≤ allowed.
func within(t testing.TB, what string, got, want, allowed float64) {
	t.Helper()
	if !(math.Abs(got-want) <= allowed) {
		t.Errorf("%s is %v, want %v within %.2g", what, got, want, allowed)
	}
}
