package loops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/loops"
)

// TestLosses compares losses and gradients of rows with those in float64, in turn and at once: for
// masked logits, for a certain prediction, and for ordinary ones. A target that is no
// column must be an error.
func TestLosses(t *testing.T) {
	for _, vocabulary := range []int{1, 5, 64, 1000} {
		for _, short := range []bool{false, true} {
			t.Run(fmt.Sprint(vocabulary, short), func(t *testing.T) { testLosses(t, vocabulary, short) })
		}
	}
}

func testLosses(t *testing.T, vocabulary int, short bool) {
	const tokens = 70
	rng := rand.New(rand.NewPCG(5, uint64(vocabulary)))
	logits, targets, factors := make([]float32, tokens*vocabulary), make([]int32, tokens),
		make([]float32, tokens)
	for i := range logits {
		logits[i] = float32(10 * rng.NormFloat64())
	}
	for i := range targets {
		targets[i], factors[i] = int32(rng.IntN(vocabulary)), float32(rng.NormFloat64())
	}
	for i := range vocabulary { // row 0 is certain, half of row 1 is masked
		if logits[i] = -200; i == int(targets[0]) {
			logits[i] = 200
		}
		if i%2 == 1 && i != int(targets[1]) {
			logits[vocabulary+i] = float32(math.Inf(-1))
		}
	}
	run := func(parallel loops.Parallel, targets []int32) (out [3][]float32, err error) {
		l := loops.Logits{Columns: vocabulary, Logits: logits, Targets: targets}
		losses, gradient := make([]float32, tokens), make([]float32, len(logits))
		if short {
			halves := make([]uint16, len(logits))
			err = l.Losses(losses, nil, halves, factors, parallel)
			loops.FromBFloat16(gradient, halves)
		} else {
			err = l.Losses(losses, gradient, nil, factors, parallel)
		}
		if err != nil {
			return out, err
		}
		totals, chosen := make([]float32, tokens), make([]float32, tokens)
		err = l.Sums(totals, chosen, parallel)
		loops.Binary(loops.Sub, totals, totals, chosen)
		return [3][]float32{losses, gradient, totals}, err
	}
	out, err := run(atOnce, targets)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(out[2], out[0]) {
		t.Error("losses without a gradient differ from those with one")
	}
	rounding := 1e-6
	if short {
		rounding = 0x1p-8
	}
	for i := range tokens {
		row, sum := logits[i*vocabulary:][:vocabulary], 0.0
		for _, x := range row {
			sum += math.Exp(float64(x) - float64(slices.Max(row)))
		}
		want := math.Log(sum) + float64(slices.Max(row)) - float64(row[targets[i]])
		if got := float64(out[0][i]); !(math.Abs(got-want) <= 1e-5+1e-6*want) {
			t.Fatalf("the loss of row %d is %v, want %v", i, got, want)
		}
		for j, x := range row {
			p := math.Exp(float64(x)-float64(slices.Max(row))) / sum
			if j == int(targets[i]) {
				p--
			}
			want, got := p*float64(factors[i]), float64(out[1][i*vocabulary+j])
			if !(math.Abs(got-want) <= rounding*math.Abs(want)+1e-6*math.Abs(float64(factors[i]))) {
				t.Fatalf("the gradient at column %d of row %d is %v, want %v", j, i, got, want)
			}
		}
	}
	if out[0][0] != 0 || out[1][targets[0]] != 0 {
		t.Errorf("a certain prediction has the loss %v and the gradient %v, want 0", out[0][0],
			out[1][targets[0]])
	}
	alone, err := run(inTurn, targets)
	if err != nil || !slices.Equal(alone[0], out[0]) || !slices.Equal(alone[1], out[1]) {
		t.Errorf("in turn the results are others, or %v", err)
	}
	for _, bad := range []int32{-1, int32(vocabulary)} {
		wrong := slices.Clone(targets)
		wrong[3] = bad
		if _, err := run(inTurn, wrong); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("target 3 is column %d, want less than %d", bad,
				vocabulary)) {
			t.Errorf("a target of %d: %v", bad, err)
		}
	}
}

// TestSoftmax compares rows with those in float64. What is not finite makes all elements NaN,
// except −∞ beside numbers.
func TestSoftmax(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, x := range [][]float32{{0}, {1, 2, 3}, {-1e4, 0, 1e4, 5}, {1, -inf, 2}, {1, inf},
		{-inf, -inf}, {0, nan, 1}, slices.Repeat([]float32{3, -2, 0.5}, 50)} {
		const scale = 0.25
		largest, sum := float64(slices.Max(x)), 0.0
		for _, v := range x {
			sum += math.Exp(scale * (float64(v) - largest))
		}
		got := slices.Clone(x)
		loops.Softmax(got, scale)
		for i, v := range x {
			want := math.Exp(scale*(float64(v)-largest)) / sum
			if g := float64(got[i]); !(math.Abs(g-want) <= 1e-6*want+1e-38) && (g == g || want == want) {
				t.Errorf("softmax of %v: element %d is %v, want %v", x[:min(5, len(x))], i, g, want)
			}
		}
	}
}
