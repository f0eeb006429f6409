package main

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk"
)

// TestProperties holds what holds for every quantizer, at a step that clips some
// of the numbers.
func TestProperties(t *testing.T) {
	for _, granularity := range []string{perTensor, perRow} {
		t.Run(granularity, func(t *testing.T) {
			plugintest.Properties(t, fixed{0.2}, map[string]any{"granularity": granularity},
				plugintest.Traits{Tensor: granularity == perTensor, Fixed: true})
		})
		t.Run(granularity+"/official", func(t *testing.T) {
			plugintest.Properties(t, fixed{0.2}, map[string]any{"granularity": granularity, "form": formOfficial},
				plugintest.Traits{Tensor: granularity == perTensor, Fixed: true, NoZero: true})
		})
	}
}

func TestUnpack(t *testing.T) {
	for _, form := range []string{formPaper, formOfficial} {
		for _, granularity := range []string{perTensor, perRow} {
			t.Run(form+"/"+granularity, func(t *testing.T) {
				plugintest.Unpacks(t, fixed{0.3}, map[string]any{"form": form, "granularity": granularity})
			})
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		role  sdk.Role
		given map[string]any
		want  string
	}{
		{"one signed bit", sdk.RoleWeight, map[string]any{"bits": 1}, "signed levels need at least 2 bits"},
		{"one signed bit, official", sdk.RoleActivation, map[string]any{"bits": 1, "form": formOfficial}, "signed levels need at least 2 bits"},
		{"unsigned weights", sdk.RoleWeight, map[string]any{"levels": levelsUnsigned}, "every negative weight would become zero"},
		{"rows of activations", sdk.RoleActivation, map[string]any{"granularity": perRow}, "tokens, which cannot have learned steps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			site := sdk.Site{Role: c.role, Name: "site", Shape: []int{2, 4}, Values: plugintest.Settings(t, lsq{}.Describe(), c.given)}
			if _, err := sdk.BuildQuantizer(lsq{}, site); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestLearning trains the step alone on ½·mean (x̂ − x)². From an eighth and eight
// times the initial step, the error falls to that of the best uniform grid of eight
// levels for a normal variable, 0.037.
func TestLearning(t *testing.T) {
	const large, best = 0.4, 0.04
	x := plugintest.Normal(4, 16, 64)
	for _, form := range []string{formPaper, formOfficial} {
		s := newSubject(t, plugintest.Oracle(), sdk.RoleWeight, map[string]any{"form": form, "bits": 3}, x.Shape...)
		for _, factor := range []float64{0.125, 8} {
			at := s.initial(t, x.Data)
			at.step[0] *= factor
			first := s.error(t, x.Data, at)
			for range 150 {
				_, d := s.gradient(t, x.Data, at, s.residual(t, x.Data, at))
				at.step[0] -= 0.04 * d.step[0]
			}
			if last := s.error(t, x.Data, at); first < large || last > best {
				t.Errorf("%s, ×%v: error %.4f → %.4f with step %.3f, want %v at most", form, factor, first, last, at.step[0], best)
			}
		}
	}
}

// residual is x̂ − x.
func (s subject) residual(t *testing.T, x []float64, at trained) []float64 {
	t.Helper()
	value, _, _ := s.quantize(t, x, at)
	for i := range value {
		value[i] -= x[i]
	}
	return value
}

// error is the mean square of the residual.
func (s subject) error(t *testing.T, x []float64, at trained) float64 {
	t.Helper()
	sum := 0.0
	for _, e := range s.residual(t, x, at) {
		sum += e * e
	}
	return sum / float64(len(x))
}
