package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/internal/testing/testdevice"
)

// TestDistilledRows checks that losses and gradients computed in one pass over the rows equal
// those of graph operations, up to rounding: for predictions that are alike, different or certain,
// with β at both ends and between them, and with several temperatures and weights.
func TestDistilledRows(t *testing.T) {
	for _, d := range []Distillation{
		{Beta: 0.5, Temperature: 1, Weight: 1}, {Beta: 0.5, Temperature: 2, Weight: 0.75, Squared: true},
		{Beta: 0.1, Temperature: 1, Weight: 0.5},
		{Beta: 0, Temperature: 1, Weight: 1}, {Beta: 0, Temperature: 0.5, Weight: 0.5},
		{Beta: 1, Temperature: 1, Weight: 1}, {Beta: 1, Temperature: 3, Weight: 0.9, Squared: true},
	} {
		for _, vocabulary := range []int{3, 257, 9001} {
			t.Run(fmt.Sprint(d, vocabulary), func(t *testing.T) { testDistilledRows(t, d, vocabulary) })
		}
	}
}

func testDistilledRows(t *testing.T, d Distillation, vocabulary int) {
	const tokens = 12
	rng := rand.New(rand.NewPCG(7, uint64(vocabulary)))
	logits, teacher, targets, factors := make([]float32, tokens*vocabulary),
		make([]float32, tokens*vocabulary), make([]int32, tokens), make([]float32, tokens)
	for i := range logits {
		spread := float64(i/vocabulary) / 2 // from nearly even predictions to certain ones
		logits[i], teacher[i] = float32(spread*rng.NormFloat64()), float32(spread*rng.NormFloat64())
		if i/vocabulary%3 == 0 {
			teacher[i] = logits[i] + float32(1e-3*rng.NormFloat64())
		}
	}
	for i := range targets {
		targets[i], factors[i] = int32(rng.IntN(vocabulary)), float32(rng.NormFloat64())
	}
	spec := func(name string, columns int) engine.Spec {
		return engine.Spec{Name: name, Shape: shapes.Make(dtypes.Float32, tokens, columns)}
	}
	in := []engine.Input{{Spec: spec("logits", vocabulary), Data: logits},
		{Spec: spec("teacher", vocabulary), Data: teacher}, {Spec: spec("factors", 1), Data: factors}}
	want, err := testdevice.OpenCPU(t, engine.Options{}).
		Evaluate("distillation", in, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			ids := engine.Constant(g, targets, tokens)
			divergences, crossEntropies := distillationLosses(d, in[0], in[1], ids)
			weighted := graph.Mul(means(d, divergences, crossEntropies).Loss, graph.Reshape(in[2], tokens))
			return []*graph.Node{divergences, crossEntropies,
				graph.Gradient(graph.ReduceAllSum(weighted), in[0])[0]}
		})
	run := func(parallel loops.Parallel, targets []int32, short bool) (out [3][]float32, err error) {
		l := loops.Logits{Columns: vocabulary, Logits: logits, Targets: targets}
		by := loops.Distillation{Teacher: teacher, Beta: d.Beta, Temperature: d.Temperature,
			Weight: d.Weight, Scale: d.Scale()}
		out = [3][]float32{make([]float32, tokens), make([]float32, tokens), make([]float32, len(logits))}
		if !short {
			return out, l.Distilled(by, out[0], out[1], out[2], nil, factors, parallel)
		}
		halves := make([]uint16, len(logits))
		err = l.Distilled(by, out[0], out[1], nil, halves, factors, parallel)
		loops.FromBFloat16(out[2], halves)
		return out, err
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, short := range []bool{false, true} {
		got, err := run(testdevice.OpenCPU(t, engine.Options{Threads: 2}).Parallel, targets, short)
		if err != nil {
			t.Fatal(err)
		}
		// log P/Q is a difference of numbers below 64, which are rounded to multiples of 2⁻¹⁸.
		const apart = 0x1p-18
		rounding := 0.0
		if short {
			rounding = 0x1p-8
		}
		for row := range tokens {
			for i, what := range []string{"divergence", "cross-entropy"} {
				a, b := float64(got[i][row]), float64(want[i][row])
				if !(math.Abs(a-b) <= 2e-6*(1+math.Abs(b))*(1+d.Scale())) {
					t.Errorf("the %s of row %d is %v, and %v by the graph", what, row, a, b)
				}
			}
			a, b := got[2][row*vocabulary:][:vocabulary], want[2][row*vocabulary:][:vocabulary]
			largest := max(math.Abs(float64(slices.Max(b))), math.Abs(float64(slices.Min(b))))
			for j := range a {
				if !(math.Abs(float64(a[j]-b[j])) <= rounding*largest+apart*math.Abs(float64(factors[row]))*max(
					1, d.Scale()/d.Temperature)) {
					t.Fatalf("%t: the gradient at column %d of row %d is %v, and %v by the graph", short, j,
						row, a[j], b[j])
				}
			}
		}
		alone, err := run(inTurn, targets, short)
		if err != nil || !slices.Equal(alone[0], got[0]) || !slices.Equal(alone[2], got[2]) {
			t.Errorf("in turn the results are others, or %v", err)
		}
	}
	targets = slices.Clone(targets)
	targets[3] = int32(vocabulary)
	if _, err := run(inTurn, targets, false); err == nil ||
		!strings.Contains(err.Error(), "target 3 is") {
		t.Errorf("a target outside: %v", err)
	}
}
