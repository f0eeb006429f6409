package model

import (
	"math"
	"math/bits"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/sdk/program"
)

// rowSums returns log Σⱼ exp(logits[i, j]) and logits[i, target], [tokens, 1] each, for logits [tokens, vocabulary] and
// targets [tokens, 1]. A kernel reads each logit once, where a compiler reads it for the largest and again for the sum:
// at 32,000 words that is as much memory as several blocks of a model read. It is not ok where the device has no kernels,
// where the vocabulary does not divide into parts of a kernel's size, and where there are more logits than a program may
// have elements.
func rowSums(logits, targets *graph.Node) (logTotal, chosen *graph.Node, ok bool) {
	size := partSize(logits.Shape().Dim(1))
	if size == 0 || logits.Shape().Size() > math.MaxInt32 {
		return nil, nil, false
	}
	return rowSumsBy(lower.Kernel, size, logits, targets)
}

// A rowsCall computes a program over rows, as [lower.Kernel] does.
type rowsCall func(g *graph.Graph, p *program.Program, rows int, inputs []*graph.Node, at lower.InMemory) (map[string]*graph.Node, bool)

// rowSumsBy has the call compute parts of the given size, and combines them.
func rowSumsBy(call rowsCall, size int, logits, targets *graph.Node) (logTotal, chosen *graph.Node, ok bool) {
	tokens, vocabulary := logits.Shape().Dim(0), logits.Shape().Dim(1)
	parts := vocabulary / size
	// The target as counted from the first column of each part: outside of it in all parts but one.
	firsts := graph.MulScalar(graph.Iota(targets.Graph(), shapes.Make(targets.DType(), tokens, parts), 1), size)
	relative := graph.Reshape(graph.Sub(targets, firsts), tokens*parts, 1)
	p, err := partSums(tokens*parts, size)
	if err != nil {
		panic(err)
	}
	out, ok := call(logits.Graph(), p, tokens*parts, []*graph.Node{graph.Reshape(logits, tokens*parts, size), relative}, nil)
	if !ok {
		return nil, nil, false
	}
	of := func(name string) *graph.Node { return graph.Reshape(out[name], tokens, parts) }
	highest := graph.ReduceAndKeep(of("highest"), graph.ReduceMax, -1)
	total := graph.Mul(of("total"), graph.Exp(graph.Sub(of("highest"), highest)))
	logTotal = graph.Add(graph.Log(graph.ReduceAndKeep(total, graph.ReduceSum, -1)), highest)
	return logTotal, graph.ReduceAndKeep(of("chosen"), graph.ReduceSum, -1), true
}

// partSums is the program of a kernel: of each row of logits the largest, the sum of the exponentials of the distances
// to it, and the one at the target, 0 where the target is in no column.
func partSums(rows, columns int) (*program.Program, error) {
	b := program.NewBuilder("loss/sums")
	logits := b.Input("logits", program.FloatType(rows, columns))
	target := b.Input("target", program.Type{DType: program.Int, Shape: []int{rows, 1}})
	isTarget := b.Iota(program.Type{DType: program.Int, Shape: []int{rows, columns}}, 1).Eq(target)
	highest := logits.MaxRow()
	b.Output("highest", highest)
	b.Output("total", logits.Sub(highest).Exp().Sum(1).Reshape(rows, 1))
	b.Output("chosen", isTarget.Select(logits, b.Const(0)).Sum(1).Reshape(rows, 1))
	return b.Build()
}

// partSize is the divisor of the vocabulary that fills a kernel's row, a power of two, best; 0 where none fills half of it.
func partSize(vocabulary int) int {
	const smallest, largest = 1024, 8192 // of smaller ones the results are many, and of larger ones the registers few
	best, filled := 0, 0.5
	for size := smallest; size <= min(vocabulary, largest); size++ {
		if share := float64(size) / float64(int(1)<<bits.Len(uint(size-1))); vocabulary%size == 0 && share >= filled {
			best, filled = size, share
		}
	}
	return best
}
