package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestDistilledRows checks that losses and gradients computed in one pass over the rows equal
// those of the definition, up to rounding: for predictions that are alike, different or certain,
// with β at both ends and between them, and with several temperatures and weights.
func TestDistilledRows(t *testing.T) {
	for _, d := range []network.Distillation{
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

func testDistilledRows(t *testing.T, d network.Distillation, vocabulary int) {
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
	want := distilledRows(t, d, logits, teacher, targets, factors)
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
					t.Errorf("the %s of row %d is %v, want %v", what, row, a, b)
				}
			}
			a, b := got[2][row*vocabulary:][:vocabulary], want[2][row*vocabulary:][:vocabulary]
			largest := max(math.Abs(float64(slices.Max(b))), math.Abs(float64(slices.Min(b))))
			for j := range a {
				if !(math.Abs(float64(a[j]-b[j])) <= rounding*largest+apart*math.Abs(float64(factors[row]))*max(
					1, d.Scale()/d.Temperature)) {
					t.Fatalf("%t: the gradient at column %d of row %d is %v, want %v", short, j,
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

// distilledRows returns divergences and cross-entropies of rows, and the gradients of the losses,
// multiplied by factors, by the reference implementation.
func distilledRows(t *testing.T, d network.Distillation, logits, teacher []float32, targets []int32,
	factors []float32) (out [3][]float32) {
	t.Helper()
	rows, columns := len(targets), len(logits)/len(targets)
	b := program.NewSimplifier("distilled")
	shape := program.FloatType(rows, columns)
	loss, divergence, entropy := d.Losses(b.Input("logits", shape), b.Input("teacher", shape),
		b.Input("targets", program.Type{DType: program.Int, Shape: []int{rows}}))
	b.Output("loss", loss)
	b.Output("divergence", divergence)
	b.Output("entropy", entropy)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	vjp, err := autodiff.VJP(p, "loss", "logits")
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]reference.Tensor{"logits": reference.Floats(wide(logits), rows, columns),
		"teacher": reference.Floats(wide(teacher), rows, columns),
		"targets": reference.Ints(targets, rows)}
	values, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	in["d.loss"] = reference.Floats(wide(factors), rows)
	gradient, err := reference.Run(vjp, in)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range []reference.Tensor{values["divergence"], values["entropy"],
		gradient["d.logits"]} {
		out[i] = architecture.Float32s(x.Floats)
	}
	return out
}
