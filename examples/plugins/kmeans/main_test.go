package main

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Quantizer(t, kmeans{}, plugintest.With(t, nil)...)
}

// TestBest compares codebooks with those of testdata/kmeans.py, which tries all partitions.
func TestBest(t *testing.T) {
	text, err := os.ReadFile("testdata/kmeans.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Bits      int
		X, Levels []float32
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	s := newSolver(32, 8) // one for all cases: it must not keep data
	for i, c := range cases {
		got := make([]float32, 1<<c.Bits)
		s.solve(c.X, got)
		for k := range got {
			if math.Abs(float64(got[k]-c.Levels[k])) > 1e-6*math.Abs(float64(c.Levels[k])) {
				t.Errorf("case %d: the levels are %v, want %v", i, got, c.Levels)
				break
			}
		}
	}
}

// TestFew checks that with at least as many levels as entries, every entry is a level.
func TestFew(t *testing.T) {
	for _, n := range []int{1, 3, 4} {
		x := []float32{3, -1, 2, 2.5}[:n]
		got := make([]float32, 4)
		newSolver(4, 4).solve(x, got)
		for _, v := range x {
			if !slices.Contains(got, v) || !slices.IsSorted(got) {
				t.Errorf("the levels of %v are %v", x, got)
			}
		}
	}
}
