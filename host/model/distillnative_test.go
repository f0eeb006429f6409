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

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/testing/testdevice"
)

// TestNativeDistilled checks that losses and gradients computed in one pass over the rows equal
// those of graph operations, up to rounding: for predictions that are alike, different or certain,
// with β at both ends and between them, and with several temperatures and weights.
func TestNativeDistilled(t *testing.T) {
	for _, d := range []Distillation{
		{Beta: 0.5, Temperature: 1, Weight: 1}, {Beta: 0.5, Temperature: 2, Weight: 0.75, Squared: true},
		{Beta: 0.1, Temperature: 1, Weight: 0.5},
		{Beta: 0, Temperature: 1, Weight: 1}, {Beta: 0, Temperature: 0.5, Weight: 0.5},
		{Beta: 1, Temperature: 1, Weight: 1}, {Beta: 1, Temperature: 3, Weight: 0.9, Squared: true},
	} {
		for _, vocabulary := range []int{3, 257, 9001} {
			t.Run(fmt.Sprint(d, vocabulary), func(t *testing.T) { testNativeDistilled(t, d, vocabulary) })
		}
	}
}

func testNativeDistilled(t *testing.T, d Distillation, vocabulary int) {
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
	run := func(o engine.Options, targets []int32, native bool) ([][]float32, error) {
		spec := func(name string, columns int) engine.Spec {
			return engine.Spec{Name: name, Shape: shapes.Make(dtypes.Float32, tokens, columns)}
		}
		in := []engine.Input{{Spec: spec("logits", vocabulary), Data: logits},
			{Spec: spec("teacher", vocabulary), Data: teacher}, {Spec: spec("factors", 1), Data: factors}}
		return testdevice.OpenCPU(t, o).
			Evaluate("distillation", in, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				ids := engine.Constant(g, targets, tokens)
				if native {
					divergences, crossEntropies, gradient := nativeDistilled(d, in[0], in[1],
						graph.InsertAxes(ids, -1), in[2])
					return []*graph.Node{divergences, crossEntropies, gradient}
				}
				divergences, crossEntropies := distillationLosses(d, in[0], in[1], ids)
				weighted := graph.Mul(means(d, divergences, crossEntropies).Loss, graph.Reshape(in[2], tokens))
				return []*graph.Node{divergences, crossEntropies,
					graph.Gradient(graph.ReduceAllSum(weighted), in[0])[0]}
			})
	}
	want, err := run(engine.Options{}, targets, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, precision := range []device.Precision{device.Float32, device.BFloat16} {
		got, err := run(engine.Options{Precision: precision, Threads: 2}, targets, true)
		if err != nil {
			t.Fatal(err)
		}
		// log P/Q is a difference of numbers below 64, which are rounded to multiples of 2⁻¹⁸.
		const apart = 0x1p-18
		rounding := 0.0
		if precision == device.BFloat16 {
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
					t.Fatalf("%s: the gradient at column %d of row %d is %v, and %v by the graph", precision, j,
						row, a[j], b[j])
				}
			}
		}
		alone, err := run(engine.Options{Precision: precision, Threads: 1}, targets, true)
		if err != nil || !slices.Equal(alone[0], got[0]) || !slices.Equal(alone[2], got[2]) {
			t.Errorf("one thread has other results, or %v", err)
		}
	}
	targets = slices.Clone(targets)
	targets[3] = int32(vocabulary)
	if _, err := run(engine.Options{}, targets, true); err == nil ||
		!strings.Contains(err.Error(), "target 3 is") {
		t.Errorf("a target outside: %v", err)
	}
}

// TestCappedNatively checks that with caps and factors, losses and gradients computed in one pass
// over the rows equal those of graph operations.
func TestCappedNatively(t *testing.T) {
	const rows, context = 2, 9
	s := tiny
	s.Kind, s.Window, s.ScoreCap, s.LogitCap, s.AttentionMultiplier = architecture.KindGemma2, 4, 0.7,
		1.5, 0.3
	s.FillIn()
	m := newTransformer(s, Options{LossTokens: 6})
	run := func(o engine.Options) [][]float32 {
		return evaluateOn(t, testdevice.OpenCPU(t, o), m, hashedWeights(m.params),
			hashedTokens(0, rows*(context+1), s.Vocab), rows,
			func(params []*graph.Node, ids *graph.Node) []*graph.Node {
				teacher := graph.MulScalar(m.BatchLogits(params, ids, nil), 0.5)
				distilled := m.Distilled(params, ids, teacher, nil,
					Distillation{Beta: 0.5, Temperature: 1, Weight: 0.5}).Loss
				loss := m.Loss(params, ids, nil)
				all := append([]*graph.Node{loss, distilled}, graph.Gradient(loss, params...)...)
				return append(all, graph.Gradient(distilled, params...)...)
			})
	}
	want := run(engine.Options{})
	for i, got := range run(engine.Options{Kernels: device.FusedKernels}) {
		if apart := engine.Distance(got, want[i]); !(apart < 1e-5) {
			t.Errorf("output %d: the relative difference is %.2g", i, apart)
		}
	}
}
