package main

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// setting is one combination of settings for the tests of formulas.
type setting struct {
	role  sdk.Role
	given map[string]any
	// formula lacks its gradient scale; sharing is N, and row is the number of elements that share a
	// step, for a tensor of 6×33.
	formula
	sharing, row int
}

func (s setting) String() string {
	return fmt.Sprintf("%s/%v/%v/%v/%v/%v", s.role, s.given["bits"], s.given["variant"],
		s.given["form"], s.given["levels"], s.given["granularity"])
}

// settings returns all combinations that are allowed at 2, 4 and 8 bits, and at unsigned 1 bit.
func settings() (list []setting) {
	const rows, cols = 6, 33
	for _, bits := range []int{1, 2, 4, 8} {
		for _, form := range forms {
			for _, variant := range []string{variantLSQ, variantPlus} {
				if form == formStableQAT && variant == variantPlus {
					continue
				}
				half := math.Ldexp(1, bits-1)
				add := func(role sdk.Role, levels, granularity string, f formula, sharing, row int) {
					f.official, f.inclusive = form == formOfficial, form == formStableQAT
					list = append(list, setting{role, map[string]any{
						"bits": bits, "variant": variant, "form": form, "levels": levels, "granularity": granularity,
					}, f, sharing, row})
				}
				features := cols
				perRowSharing := cols
				if form != formPaper {
					features = rows * cols
				}
				if form == formStableQAT {
					perRowSharing = rows * cols
				}
				add(sdk.RoleActivation, levelsUnsigned, perTensor, formula{qn: 0, qp: 2*half - 1}, features,
					rows*cols)
				if bits > 1 {
					signed := formula{qn: half, qp: half - 1}
					add(sdk.RoleActivation, levelsSigned, perTensor, signed, features, rows*cols)
					add(sdk.RoleWeight, levelsSigned, perTensor, signed, rows*cols, rows*cols)
					add(sdk.RoleWeight, levelsSigned, perRow, signed, perRowSharing, cols)
				}
			}
		}
	}
	return list
}

// TestFormulas compares value, codes, mask and gradients with the formulas, for steps that clip
// many and few elements. Steps are powers of two and offsets multiples of an eighth, so r and
// decisions based on it are the same in binary32. Some elements lie exactly on a bound, a level or
// a tie.
func TestFormulas(t *testing.T) {
	x, dy := plugintest.Normal(1, 6, 33), plugintest.Normal(2, 6, 33).Data
	for i := range x.Data {
		x.Data[i] = math.Round(x.Data[i]*(1<<12)) / (1 << 12)
	}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, set := range settings() {
			t.Run(set.String(), func(t *testing.T) {
				s := newSubject(t, m, set.role, set.given, x.Shape...)
				set.gradientScale = 1 / math.Sqrt(float64(set.sharing)*set.qp)
				for _, step := range []float64{0x1p-6, 0x1p-2, 1} {
					s.compare(t, set, onGrid(x.Data, step, set.formula), step, dy)
				}
			})
		}
	})
}

// onGrid moves some elements to bounds, levels and ties of the grid with the given step.
func onGrid(x []float64, step float64, f formula) []float64 {
	x = append([]float64(nil), x...)
	for i, r := range []float64{-f.qn, f.qp, -f.qn - 1, f.qp + 1, 0, 1, 0.5, -0.5, f.qp + 0.5,
		-f.qn - 0.5, f.qp - 0.5, -f.qn + 0.5} {
		x[5*i] = r * step
	}
	return x
}

func (s subject) compare(t *testing.T, set setting, x []float64, step float64, dy []float64) {
	t.Helper()
	at := trained{}
	for i := range len(x) / set.row {
		at.step = append(at.step, math.Ldexp(step, i%3))
	}
	if hasOffset(s.site) {
		at.offset = -0.375
	}
	var wantValue, wantCodes, wantMask []float64
	for i, v := range x {
		value, code, inside, _ := set.element(v, at.step[i/set.row], at.offset)
		one := 0.0
		if inside {
			one = 1
		}
		wantValue, wantCodes, wantMask = append(wantValue, value), append(wantCodes, code),
			append(wantMask, one)
	}
	value, codes, mask := s.quantize(t, x, at)
	plugintest.Near(t, "value", value, wantValue, s.rounding())
	plugintest.Near(t, "codes", codes, wantCodes, 0)
	plugintest.Near(t, "mask", mask, wantMask, 0)

	wantDX, want := set.gradient(x, at, set.row, dy)
	dx, d := s.gradient(t, x, at, dy)
	plugintest.Near(t, "dx", dx, wantDX, 0)
	allowed := set.roundings(x, at, set.row, dy, unit(s.m))
	for i, got := range d.step {
		within(t, fmt.Sprintf("ds of step %d", i), got, want.step[i], allowed.step[i])
	}
	if hasOffset(s.site) {
		within(t, "dβ", d.offset, want.offset, allowed.offset)
	}
}

// TestGradientBelowTheBound checks that the smallest step replaces any step below it, which still
// receives its gradient. (For the stableqat form, testdata/stableqat.json has such steps.)
func TestGradientBelowTheBound(t *testing.T) {
	x, dy := []float64{0.5, -0.25, 3}, []float64{1, 2, 4}
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		s := newSubject(t, m, sdk.RoleWeight, nil, 1, 3)
		scale := 1 / math.Sqrt(3*7.)
		for _, step := range []float64{1e-12, 0, -1} {
			at := trained{step: []float64{step}}
			value, codes, _ := s.quantize(t, x, at)
			plugintest.Near(t, "codes", codes, []float64{7, -8, 7}, 0)
			plugintest.Near(t, "value", value, []float64{7e-8, -8e-8, 7e-8}, s.rounding())
			_, d := s.gradient(t, x, at, dy)
			plugintest.Near(t, "ds", d.step, []float64{scale * (7 - 2*8 + 4*7)}, s.rounding())
		}
	})
}

// TestPoisonedGroup checks that a non-finite element makes its group NaN and gives the trained
// parameters no gradient, even if dx̂ is not finite either.
func TestPoisonedGroup(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			x := []float64{1, 2, bad, 4, 0.5, -1, 1, 2}
			dy := []float64{1, math.NaN(), math.Inf(1), 1, 1, 1, 1, 1}
			nan, zero := math.NaN(), make([]float64, 8)

			s := newSubject(t, m, sdk.RoleActivation, map[string]any{"variant": variantPlus}, 2, 4)
			at := trained{[]float64{0.25}, 0.5}
			value, codes, mask := s.quantize(t, x, at)
			plugintest.Near(t, "value", value, []float64{nan, nan, nan, nan, nan, nan, nan, nan}, 0)
			plugintest.Near(t, "codes", codes, zero, 0)
			plugintest.Near(t, "mask", mask, zero, 0)
			dx, d := s.gradient(t, x, at, dy)
			plugintest.Near(t, "dx", dx, zero, 0)
			plugintest.Near(t, "ds and dβ", append(d.step, d.offset), []float64{0, 0}, 0)

			s = newSubject(t, m, sdk.RoleWeight, map[string]any{"granularity": perRow}, 2, 4)
			at = trained{step: []float64{0.25, 0.5}}
			value, _, _ = s.quantize(t, x, at)
			plugintest.Near(t, "value by rows", value, []float64{nan, nan, nan, nan, 0.5, -1, 1, 2}, 0)
			_, d = s.gradient(t, x, at, dy)
			plugintest.Near(t, "ds by rows", d.step, []float64{0, 0}, 0)
		}
	})
}

// TestResiduals checks that, besides scalars, the backward pass of training needs from the forward
// pass one bool and one float for each element.
func TestResiduals(t *testing.T) {
	s := newSubject(t, plugintest.Reference(), sdk.RoleActivation,
		map[string]any{"variant": variantPlus}, 64, 32)
	parts, err := s.built.Split()
	if err != nil {
		t.Fatal(err)
	}
	large := map[string]int{}
	for _, r := range parts.Residuals {
		if r.Type.Rank() > 0 {
			large[r.Type.String()]++
		}
	}
	if len(large) != 2 || large["bool[64,32]"] != 1 || large["float[64,32]"] != 1 {
		t.Errorf("kept are %v, want one bool and one float", parts.Residuals)
	}
}

// TestSineDerivative checks that the derivative is 1 halfway between levels, follows the formula
// with a cosine of 1 at a level, and is positive.
func TestSineDerivative(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		x := make([]float64, 129)
		for i := range x {
			x[i] = float64(i)/128 - 0.5
		}
		got := m.Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
			return []program.Value{sineDerivative(in[0])}
		}, reference.Floats(x, len(x)))[0]
		c := math.Sqrt2 * math.Pi * amplitude
		plugintest.Near(t, "on ties and on a level", []float64{got[0], got[64], got[128]},
			[]float64{1, (1 - c) / (1 + c), 1}, 3e-6)
		if least := slices.Min(got); least <= 0 {
			t.Errorf("the least is %v", least)
		}
	})
}
