package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
)

// doubling returns a trial of an operation that multiplies numbers by factor and should double
// them.
func doubling(factor float32) Trial {
	const n = 4
	return Trial{
		Inputs: []Input{{Spec: Spec{Name: "x", Shape: shapes.Make(shapes.Float32, n)},
			Data: []float32{1, 2, 3, 4}}},
		Fused: func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.MulScalar(in[0], float64(factor))}
		},
		Plain: func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(in[0], in[0])}
		},
		Compare: func(fused, plain [][]float32) error {
			if !slices.Equal(fused[0], plain[0]) {
				return errors.New("other values")
			}
			return nil
		},
	}
}

// TestPasses checks that each kind is tried once, and that a kind that is refused or computes other
// values logs a warning and does not affect other kinds.
func TestPasses(t *testing.T) {
	var warnings []string
	d, err := Open(device.CPU,
		Options{Warn: func(message string, details ...any) {
			warnings = append(warnings, fmt.Sprint(message, details))
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	refused := doubling(2)
	refused.Fused = func(*graph.Graph, []*graph.Node) []*graph.Node {
		panic(errors.New("no such operation"))
	}
	tried := map[string]int{}
	for range 2 {
		for kind, tt := range map[string]struct {
			trial Trial
			want  bool
		}{"right": {doubling(2), true}, "wrong": {doubling(3), false}, "refused": {refused, false}} {
			if got := d.Passes(kind, "done otherwise",
				func() (Trial, error) { tried[kind]++; return tt.trial, nil }); got != tt.want {
				t.Errorf("%s: %t, want %t", kind, got, tt.want)
			}
		}
	}
	if tried["right"] != 1 || tried["wrong"] != 1 || tried["refused"] != 1 {
		t.Errorf("trials: %v", tried)
	}
	slices.Sort(warnings)
	if len(warnings) != 2 ||
		!strings.Contains(warnings[0],
			"kind refused reason the device does not support the operation: ") ||
		!strings.Contains(warnings[1], "kind wrong reason other values") {
		t.Errorf("warnings: %q", warnings)
	}
	if err := d.Try(refused); !errors.Is(err, ErrRefused) {
		t.Errorf("refused: %v", err)
	}
}
