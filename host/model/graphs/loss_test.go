package graphs

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testkernel"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestLossRows checks the sums and gradients of the kernel for rows that fill it and for others,
// for logits whose exponentials would overflow, and for a certain prediction, where they are 0.
func TestLossRows(t *testing.T) {
	testlevel.Long(t, "rows of 32,000 columns")
	for _, columns := range []int{64, 1000, 32000} {
		const rows = 4
		p, err := lossRows(rows, columns)
		if err != nil {
			t.Fatal(err)
		}
		k, err := testkernel.CompileLone(p, rows, lower.InMemory{"gradient": passes.BFloat16})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := testkernel.Compile(p, rows, nil); (err != nil) != (columns > 1<<14) {
			t.Errorf("%d columns, as a program that keeps several tensors: %v", columns, err)
		}
		rng := rand.New(rand.NewPCG(7, uint64(columns)))
		logits := reference.Tensor{Type: p.Inputs[0].Type}
		for i := range rows * columns {
			logits.Floats = append(logits.Floats,
				float64(float32(3*rng.NormFloat64()+float64(100*(i/columns)))))
		}
		targets := []int64{0, int64(columns) - 1, 17, 5}
		logits.Floats[3*columns+5] = 1000
		factors := []float64{1, -0.5, 2, 4}
		got, err := k.Run(map[string]reference.Tensor{"logits": logits,
			"target": {Type: p.Inputs[1].Type, Ints: targets},
			"factor": {Type: p.Inputs[2].Type, Floats: factors}})
		if err != nil {
			t.Fatal(err)
		}
		for i, target := range targets {
			row := logits.Floats[i*columns : (i+1)*columns]
			highest, total := math.Inf(-1), 0.0
			for _, x := range row {
				highest = max(highest, x)
			}
			for _, x := range row {
				total += math.Exp(x - highest)
			}
			want := math.Log(total) + highest
			if g := got["total"].Floats[i]; !(math.Abs(g-want) <= 1e-5*want) {
				t.Errorf("%d columns, row %d: the logarithm of the sum is %g, want %g", columns, i, g, want)
			}
			for j, x := range row {
				want := math.Exp(x-highest) / total
				if j == int(target) {
					want--
				}
				want *= factors[i]
				// Half a step of bfloat16, and the float32 rounding errors of a sum of 32,000 numbers and of
				// its logarithm, which is added to up to 300.
				g := got["gradient"].Floats[i*columns+j]
				if !(math.Abs(g-want) <= math.Abs(want)*(1.0/256+2e-4)+1e-30) {
					t.Fatalf("%d columns, row %d, column %d: the gradient is %g, want %g", columns, i, j, g, want)
				}
			}
		}
	}
}

// TestRowLosses checks that the kernel's program gives the losses and gradients of the graph, and
// that too long rows have no kernel.
func TestRowLosses(t *testing.T) {
	asGraph := func(g *graph.Graph, _ lower.Subject, p *program.Program, _ int, inputs []*graph.Node,
		_ lower.InMemory) (map[string]*graph.Node, bool) {
		return lower.Lower(g, p, inputs), true
	}
	const rows = 2
	for _, vocabulary := range []int{7, triton.LargestLoneRow, triton.LargestLoneRow + 1} {
		rng := rand.New(rand.NewPCG(10, uint64(vocabulary)))
		logits := make([]float32, rows*vocabulary)
		for i := range logits {
			logits[i] = float32(3 * rng.NormFloat64())
		}
		d := testdevice.Open(t, engine.Options{})
		buffers := []*engine.Buffer{testdevice.Upload(t, d, logits, rows, vocabulary),
			testdevice.Upload(t, d, []int32{5, int32(vocabulary) - 1}, rows, 1),
			testdevice.Upload(t, d, []float32{0.5, -2}, rows, 1)}
		ok := false
		out := testdevice.Evaluate(t, d, buffers, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			losses, logTotal := maskedLosses(in[0], in[1])
			want := []*graph.Node{losses, logitsGradient(in[0], logTotal, in[1], in[2])}
			var dLogits *graph.Node
			if losses, dLogits, ok = rowLosses(asGraph, in[0], in[1], in[2]); !ok {
				return want
			}
			return append(want, losses, dLogits)
		})
		if want := vocabulary <= triton.LargestLoneRow; ok != want {
			t.Errorf("vocabulary %d: a kernel: %v", vocabulary, ok)
		}
		for i, got := range out[2:] {
			if d := engine.Distance(got, out[i]); !(d < 1e-5) {
				t.Errorf("vocabulary %d, output %d: the relative difference is %.2g", vocabulary, i, d)
			}
		}
	}
}

// TestChunks checks that chunks are equal, with at most 1 GiB of logits if the tokens divide so.
func TestChunks(t *testing.T) {
	for _, tc := range []struct{ tokens, vocabulary, want int }{
		{64 * 512, 32000, 4}, {64 * 2048, 32000, 16}, {64 * 512, 151936, 32}, {64 * 512, 256, 1},
		{2048, 32000, 1},
		{3 * 4096, 32000, 2}, {32771 /* a prime */, 32000, 1}, {2 * 16411 /* a prime */, 32000, 2},
		{64 * 512, 1 << 20, 32 /* of 1,024 tokens */},
	} {
		if got := chunks(tc.tokens, tc.vocabulary, 0); got != tc.want {
			t.Errorf("%d tokens, vocabulary %d: %d chunks, want %d", tc.tokens, tc.vocabulary, got, tc.want)
		}
	}
}

// TestTooManyLogits checks that more logits than the elements of a program may be have no kernel. A
// graph has no such limit.
func TestTooManyLogits(t *testing.T) {
	const rows, columns = 1 << 17, 1 << 15
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16, Kernels: device.BodyKernels})
	specs := []engine.Spec{{Name: "logits", Shape: shapes.Make(shapes.Float32, rows, columns)},
		{Name: "targets", Shape: shapes.Make(shapes.Int32, rows, 1)},
		{Name: "factors", Shape: shapes.Make(shapes.Float32, rows, 1)}}
	e, err := d.Compile("too many", specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		if _, _, ok := rowLosses(lower.Kernel, in[0], in[1], in[2]); ok {
			t.Errorf("there is a kernel of %d logits", rows*columns)
		}
		return in[1:]
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
}
