package model

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/engine/autodiff"
)

// embed returns the rows of the table that ids [tokens] name, [tokens, width].
func embed(table, ids *graph.Node) *graph.Node {
	return graph.Gather(table, graph.InsertAxes(ids, -1))
}

// crossEntropy returns −log softmax(h·headᵀ)[target] for each row of h [tokens, width], with head [vocabulary, width]
// and targets [tokens], computed in n chunks one after the other on GPUs and in bfloat16.
func crossEntropy(n int, h, head, targets *graph.Node) *graph.Node {
	if engine.OnCPU(h.Graph()) && !engine.InBFloat16(h.Graph()) {
		return crossEntropyByRows(h, head, targets)
	}
	if n == 1 {
		return crossEntropyAtOnce(h, head, targets)
	}
	return crossEntropyInChunks(n, h, head, targets)
}

// crossEntropyInChunks is for evaluation, but has a gradient, too: the logits are computed anew for it, which
// [transformer.Loss] need not do.
func crossEntropyInChunks(n int, h, head, targets *graph.Node) *graph.Node {
	targets = graph.InsertAxes(targets, -1)
	losses := lossesInChunks(n, h, head, targets)
	return autodiff.Custom(graph.Squeeze(losses, -1), []*graph.Node{h, head}, func(dLosses *graph.Node) []*graph.Node {
		_, dh, dHead := lossInChunks(n, h, head, targets, graph.InsertAxes(dLosses, -1))
		return []*graph.Node{dh, dHead}
	})
}

// crossEntropyAtOnce stores of the values for all columns only the logits: the backward pass computes probabilities from
// them, and not from the exponentials in the sum.
func crossEntropyAtOnce(h, head, targets *graph.Node) *graph.Node {
	targets = graph.InsertAxes(targets, -1)
	logits := timesTransposed(h, head)
	losses, logTotal := maskedLosses(logits, targets)
	return autodiff.Custom(graph.Squeeze(losses, -1), []*graph.Node{h, head}, func(dLosses *graph.Node) []*graph.Node {
		dLogits := logitsGradient(logits, logTotal, targets, graph.InsertAxes(dLosses, -1))
		return []*graph.Node{times(dLogits, head), weightGradient(dLogits, h)}
	})
}

// maskedLosses returns −log softmax(logits)[target] and log Σ exp(logits) of each row, [tokens, 1] each, for targets
// [tokens, 1]. It picks the target's logit by comparing its column with all columns, which costs nothing where
// elementwise operations are fused. The logit is the one in the sum, to the last bit: computed a second time, a rounded
// product could differ.
func maskedLosses(logits, targets *graph.Node) (losses, logTotal *graph.Node) {
	logTotal, chosen, ok := rowSums(logits, targets)
	if !ok {
		highest := graph.ReduceAndKeep(logits, graph.ReduceMax, -1)
		logTotal = graph.Add(graph.Log(graph.ReduceAndKeep(graph.Exp(graph.Sub(logits, highest)), graph.ReduceSum, -1)), highest)
		chosen = graph.ReduceAndKeep(graph.Where(isTarget(logits, targets), logits, graph.ScalarZero(logits.Graph(), logits.DType())), graph.ReduceSum, -1)
	}
	return graph.Sub(logTotal, chosen), logTotal
}

// logitsGradient returns the gradient with respect to the logits from that with respect to the losses, [tokens, 1]. It is
// rounded as a whole, so that it vanishes where the prediction is certain.
func logitsGradient(logits, logTotal, targets, dLosses *graph.Node) *graph.Node {
	probabilities := graph.Exp(graph.Sub(logits, logTotal))
	return graph.Mul(graph.Where(isTarget(logits, targets), graph.AddScalar(probabilities, -1), probabilities), dLosses)
}

// isTarget says which column of logits is the target.
func isTarget(logits, targets *graph.Node) *graph.Node {
	columns := graph.Iota(logits.Graph(), shapes.Make(targets.DType(), logits.Shape().Dimensions...), 1)
	return graph.Equal(columns, graph.BroadcastToDims(targets, logits.Shape().Dimensions...))
}

// crossEntropyByRows stores neither a one-hot matrix nor log-probabilities: the target's part of a gradient is a row of
// the head, or is added to one, and the rest comes from the exponentials of the forward pass.
func crossEntropyByRows(h, head, targets *graph.Node) *graph.Node {
	logits := timesTransposed(h, head)
	highest := graph.ReduceAndKeep(logits, graph.ReduceMax, -1)
	exponentials := graph.Exp(graph.Sub(logits, highest))
	total := graph.ReduceAndKeep(exponentials, graph.ReduceSum, -1) // [tokens, 1]
	index := graph.InsertAxes(targets, -1)
	rows := graph.Gather(head, index) // [tokens, width]
	chosen := graph.ReduceAndKeep(graph.Mul(h, rows), graph.ReduceSum, -1)
	losses := graph.Squeeze(graph.Sub(graph.Add(graph.Log(total), highest), chosen), -1)
	return autodiff.Custom(losses, []*graph.Node{h, head}, func(dLosses *graph.Node) []*graph.Node {
		dLosses = graph.InsertAxes(dLosses, -1)
		dLogits := graph.Mul(exponentials, graph.Div(dLosses, total)) // without the target's −1
		dh := graph.Sub(times(dLogits, head), graph.Mul(rows, dLosses))
		dTargets := graph.Scatter(index, graph.Mul(h, dLosses), head.Shape(), false, false)
		return []*graph.Node{dh, graph.Sub(weightGradient(dLogits, h), dTargets)}
	})
}

// clampIDs brings ids into the vocabulary, because the lookup of one outside it is undefined: on the CPU it ends the
// process. nanUnlessValid makes the mistake visible.
func clampIDs(ids *graph.Node, vocabulary int) *graph.Node {
	return graph.ClipScalar(ids, 0, float64(vocabulary-1))
}

// nanUnlessValid returns x, or NaNs if any id is outside the vocabulary.
func nanUnlessValid(x, ids *graph.Node, vocabulary int) *graph.Node {
	g := x.Graph()
	wrong := graph.ConvertDType(graph.NotEqual(ids, clampIDs(ids, vocabulary)), dtypes.Int32)
	nan := graph.BroadcastToShape(graph.Scalar(g, x.DType(), math.NaN()), shapes.Make(x.DType(), x.Shape().Dimensions...))
	valid := graph.Equal(graph.ReduceAllMax(wrong), graph.Scalar(g, dtypes.Int32, 0))
	return graph.Where(valid, x, nan)
}
