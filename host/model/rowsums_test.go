package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/host/internal/testkernel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestRowSums: the sums of parts make those of rows, wherever the target is, and for logits whose exponentials alone
// are too large.
func TestRowSums(t *testing.T) {
	const tokens, vocabulary, size = 12, 60, 15
	rng := rand.New(rand.NewPCG(5, 6))
	logits, targets := make([]float32, tokens*vocabulary), make([]int32, tokens)
	for i := range logits {
		logits[i] = float32(40 * rng.NormFloat64())
	}
	for i := range targets {
		targets[i] = int32(i * (vocabulary - 1) / (tokens - 1)) // the first and the last, too
	}
	d := testdevice.Open(t, engine.Options{})
	buffers := []*engine.Buffer{testdevice.Upload(t, d, logits, tokens, vocabulary), testdevice.Upload(t, d, targets, tokens, 1)}
	got := testdevice.Evaluate(t, d, buffers, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		asGraph := func(g *graph.Graph, p *program.Program, _ int, inputs []*graph.Node, _ lower.InMemory) (map[string]*graph.Node, bool) {
			return lower.Lower(g, p, inputs), true
		}
		logTotal, chosen, _ := rowSumsBy(asGraph, size, in[0], in[1])
		return []*graph.Node{logTotal, chosen}
	})
	for i := range tokens {
		row := logits[i*vocabulary : (i+1)*vocabulary]
		total := 0.0
		for _, x := range row {
			total += math.Exp(float64(x) - 100)
		}
		if want := math.Log(total) + 100; !(math.Abs(float64(got[0][i])-want) < 1e-4) {
			t.Errorf("row %d: the logarithm of the sum is %g, want %g", i, got[0][i], want)
		}
		if want := row[targets[i]]; got[1][i] != want {
			t.Errorf("row %d: the logit of the target is %g, want %g", i, got[1][i], want)
		}
	}
}

// TestPartSums: the kernel computes what the program says, for parts that fill a kernel's row and for others.
func TestPartSums(t *testing.T) {
	const rows = 6
	for _, columns := range []int{1024, 1571} {
		p, err := partSums(rows, columns)
		if err != nil {
			t.Fatal(err)
		}
		k, err := testkernel.Compile(p, rows, nil)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(7, uint64(columns)))
		logits := reference.Tensor{Type: p.Inputs[0].Type}
		for range rows * columns {
			logits.Floats = append(logits.Floats, float64(float32(3*rng.NormFloat64()-5)))
		}
		inputs := map[string]reference.Tensor{"logits": logits,
			"target": {Type: p.Inputs[1].Type, Ints: []int64{0, -1, int64(columns), 100, int64(columns) - 1, -int64(columns)}}}
		want, err := reference.Run(p, inputs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.Run(inputs)
		if err != nil {
			t.Fatal(err)
		}
		for name, w := range want {
			for i, x := range w.Floats {
				if g := got[name].Floats[i]; !(math.Abs(g-x) <= 1e-5*math.Abs(x)) {
					t.Errorf("%d columns: %s of row %d is %g, want %g", columns, name, i, g, x)
				}
			}
		}
		if chosen := want["chosen"].Floats; chosen[0] == 0 || chosen[1] != 0 || chosen[2] != 0 || chosen[4] == 0 {
			t.Errorf("%d columns: the logits of the targets are %v", columns, chosen)
		}
	}
}

// TestPartSize: parts divide the vocabularies of known models, and fill most of a kernel's row.
func TestPartSize(t *testing.T) {
	for vocabulary, want := range map[int]int{32000: 8000, 32768: 8192, 50304: 6288, 50257: 1733, 100352: 2048, 128256: 8016, 151936: 4748,
		256: 0, 100277: 0 /* 149 · 673 */} {
		if got := partSize(vocabulary); got != want {
			t.Errorf("vocabulary %d: parts of %d, want %d", vocabulary, got, want)
		}
	}
}
