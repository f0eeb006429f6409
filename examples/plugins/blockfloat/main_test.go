package main

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
)

func TestQuantize(t *testing.T) {
	nan := math.NaN()
	cases := []struct {
		name                  string
		x, value, codes, step []float64
	}{
		// The largest magnitude lies in [4, 8): the step is 4/2² = 1.
		{"ties and clipping", []float64{7.9, -2.5, 0.5, -0.6}, []float64{7, -2, 0, -1},
			[]float64{7, -2, 0, -1}, []float64{1}},
		{"an exact power of two", []float64{4, -3, 1.5, 0}, []float64{4, -3, 2, 0},
			[]float64{4, -3, 2, 0}, []float64{1}},
		{"a small row", []float64{0.3, 0.1, -0.25, 0}, []float64{0.3125, 0.125, -0.25, 0},
			[]float64{5, 2, -4, 0}, []float64{0.0625}},
		{"zeros", []float64{0, 0, 0, 0}, []float64{0, 0, 0, 0}, []float64{0, 0, 0, 0},
			[]float64{0x1p-102}},
		{"not a number", []float64{1, nan, 2, 3}, []float64{nan, nan, nan, nan}, []float64{0, 0, 0, 0},
			[]float64{nan}},
		{"an infinity", []float64{1, 2, math.Inf(-1), 3}, []float64{nan, nan, nan, nan},
			[]float64{0, 0, 0, 0}, []float64{nan}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
				q := m.Quantize(t, blockfloat{}, nil, golden.Array{Shape: []int{1, 4}, Data: c.x})
				for what, diff := range map[string]string{
					"values": cmp.Diff(c.value, q.Value, cmpopts.EquateNaNs()),
					"codes":  cmp.Diff(c.codes, q.Codes, cmpopts.EquateNaNs()),
					"scale":  cmp.Diff(c.step, q.Scale, cmpopts.EquateNaNs()),
				} {
					if diff != "" {
						t.Errorf("%s (-want +got):\n%s", what, diff)
					}
				}
			})
		})
	}
}

// TestReadme checks that README.md shows the function of this program.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	shown, _, _ := strings.Cut(rest, "```")
	if shown == "" || !strings.Contains(string(source), shown) {
		t.Errorf("README.md shows other code than main.go:\n%s", shown)
	}
}
