package plugintest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
)

// Traits tells [Properties] what to expect of a quantizer with given settings.
// The zero Traits is one scale for each row, and zeros that stay zeros.
type Traits struct {
	// Tensor: one scale for all rows, which are then not independent.
	Tensor bool
	// Group is the number of consecutive entries of a row that share a scale;
	// 0: the whole row.
	Group int
	// NoZero: zero is not a level.
	NoZero bool
	// Fixed: what is on the grid stays where it is, Q(Q(x)) = Q(x).
	Fixed bool
	// Ties: the grid puts entries of any tensor on a tie, which the rounding of
	// the scale decides. Homogeneity is then checked for powers of two only.
	Ties bool
}

// Properties checks on every machine, for short, odd and regular row lengths, what
// holds for every quantizer: a NaN or an infinity makes its own scale group NaN,
// with codes 0, mask 0 and no gradient, and touches nothing else; rows are
// independent; zeros stay zeros; extreme rows do no harm to others; a promise to be
// homogeneous is kept.
func Properties(t *testing.T, q sdk.Quantizer, given map[string]any, traits Traits) {
	t.Helper()
	Each(t, func(t *testing.T, m Machine) {
		for _, d := range []int{1, 3, 31, 32, 33, 64} {
			for _, rows := range []int{1, 4} {
				s := subject{m, q, given, traits, Normal(uint64(100*d+rows), rows, d)}
				t.Run(fmt.Sprintf("%dx%d", rows, d), s.check)
			}
		}
	})
}

// Normal is a tensor of seeded standard normal numbers, rounded to binary32 so
// that every machine sees the same.
func Normal(seed uint64, shape ...int) golden.Tensor {
	size := 1
	for _, d := range shape {
		size *= d
	}
	r := rand.New(rand.NewPCG(seed, 0))
	data := make([]float64, size)
	for i := range data {
		data[i] = float64(float32(r.NormFloat64()))
	}
	return golden.Tensor{Shape: shape, Data: data}
}

// subject is one quantizer with its settings, on one machine, with one matrix.
type subject struct {
	m      Machine
	q      sdk.Quantizer
	given  map[string]any
	traits Traits
	x      golden.Tensor
}

func (s subject) check(t *testing.T) {
	base := s.quantize(t, s.x)
	s.checkPoison(t, base)
	s.checkRows(t, base)
	s.checkZeros(t)
	s.checkExtremes(t, base)
	if base.Homogeneous {
		s.checkHomogeneous(t, base)
	}
	if s.traits.Fixed {
		again := s.quantize(t, golden.Tensor{Shape: s.x.Shape, Data: base.Value})
		Near(t, "codes of what is on the grid", again.Codes, base.Codes, 0)
		Near(t, "value of what is on the grid", again.Value, base.Value, s.rounding())
	}
}

func (s subject) quantize(t *testing.T, x golden.Tensor) Quantization {
	t.Helper()
	return s.m.Quantize(t, s.q, s.given, x)
}

// rounding is what a few operations may do to a result.
func (s subject) rounding() float64 {
	if s.m.Double {
		return 1e-14
	}
	return 2e-6
}

func (s subject) rows() int { return s.x.Shape[0] }
func (s subject) cols() int { return s.x.Shape[1] }

// shares tells whether the element at index shares a scale with the one at other.
func (s subject) shares(index, other int) bool {
	if s.traits.Tensor {
		return true
	}
	group := s.cols()
	if s.traits.Group > 0 {
		group = min(group, s.traits.Group)
	}
	d := s.cols()
	return index/d == other/d && index%d/group == other%d/group
}

// with is x with one element replaced.
func (s subject) with(index int, v float64) golden.Tensor {
	x := s.x.Clone()
	x.Data[index] = v
	return x
}

func (s subject) checkPoison(t *testing.T, base Quantization) {
	t.Helper()
	at := len(s.x.Data)/2 + s.cols()/2
	if s.rows() == 1 {
		at = s.cols() / 2
	}
	ones := slices.Repeat([]float64{1}, len(s.x.Data))
	clean := base.Gradient(t, ones)
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		got := s.quantize(t, s.with(at, bad))
		gradient := got.Gradient(t, ones)
		want := Quantization{Value: slices.Clone(base.Value), Codes: slices.Clone(base.Codes), Mask: slices.Clone(base.Mask)}
		pass := slices.Clone(clean)
		for i := range want.Value {
			if s.shares(i, at) {
				want.Value[i], want.Codes[i], want.Mask[i], pass[i] = math.NaN(), 0, 0, 0
			}
		}
		what := fmt.Sprintf("with %v at %d: ", bad, at)
		Near(t, what+"value", got.Value, want.Value, 0)
		Near(t, what+"codes", got.Codes, want.Codes, 0)
		Near(t, what+"mask", got.Mask, want.Mask, 0)
		Near(t, what+"gradient", gradient, pass, 0)
	}
}

// checkRows compares each row of the matrix with the same row alone.
func (s subject) checkRows(t *testing.T, base Quantization) {
	t.Helper()
	if s.traits.Tensor {
		return
	}
	d := s.cols()
	for i := range s.rows() {
		alone := s.quantize(t, golden.Tensor{Shape: []int{1, d}, Data: s.x.Data[i*d : (i+1)*d]})
		Near(t, fmt.Sprintf("row %d alone: value", i), alone.Value, base.Value[i*d:(i+1)*d], s.rounding())
		Near(t, fmt.Sprintf("row %d alone: codes", i), alone.Codes, base.Codes[i*d:(i+1)*d], 0)
		Near(t, fmt.Sprintf("row %d alone: mask", i), alone.Mask, base.Mask[i*d:(i+1)*d], 0)
	}
}

func (s subject) checkZeros(t *testing.T) {
	t.Helper()
	if s.traits.NoZero {
		return
	}
	zeros := make([]float64, len(s.x.Data))
	got := s.quantize(t, golden.Tensor{Shape: s.x.Shape, Data: zeros})
	Near(t, "zeros: value", got.Value, zeros, 0)
	Near(t, "zeros: codes", got.Codes, zeros, 0)
	Near(t, "zeros: mask", got.Mask, slices.Repeat([]float64{1}, len(zeros)), 0)
}

// checkExtremes puts rows of the largest, of subnormal, of equal and of zero
// numbers before a regular row, which must not notice; and asks that subnormal
// and equal numbers give finite results.
func (s subject) checkExtremes(t *testing.T, base Quantization) {
	t.Helper()
	if s.traits.Tensor || s.rows() < 4 {
		return
	}
	d := s.cols()
	x := s.x.Clone()
	for j := range d {
		x.Data[j] = math.MaxFloat32 * float64(1-2*(j%2))
		x.Data[d+j] = 0x1p-149 * float64(1+j)
		x.Data[2*d+j] = -0.375
	}
	got := s.quantize(t, x)
	Near(t, "beside extreme rows: value", got.Value[3*d:], base.Value[3*d:], 0)
	Near(t, "beside extreme rows: codes", got.Codes[3*d:], base.Codes[3*d:], 0)
	for i, v := range got.Value[d : 3*d] {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("row %d: x = %v gives %v", 1+i/d, x.Data[d+i], v)
		}
	}
	if s.m.Double {
		for j, v := range got.Value[:d] {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("x = %v gives %v in binary64", x.Data[j], v)
			}
		}
	}
}

// checkHomogeneous compares Q(c·x) with c·Q(x). For powers of two both are the
// same numbers bit for bit.
func (s subject) checkHomogeneous(t *testing.T, base Quantization) {
	t.Helper()
	for _, c := range []float64{0x1p-20, 0x1p10, 3.7} {
		if c == 3.7 && s.traits.Ties {
			continue
		}
		scaled := golden.Tensor{Shape: s.x.Shape, Data: Times(c, s.x.Data)}
		got := s.quantize(t, scaled)
		rounding := 0.0
		if c == 3.7 {
			rounding = s.rounding()
		}
		what := fmt.Sprintf("%v·x: ", c)
		Near(t, what+"value", got.Value, Times(c, base.Value), rounding)
		Near(t, what+"codes", got.Codes, base.Codes, 0)
		Near(t, what+"mask", got.Mask, base.Mask, 0)
	}
}
