package model

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/engine/autodiff"
)

// embed returns the rows of the table that ids [tokens] name, [tokens, width].
func embed(table, ids *graph.Node) *graph.Node {
	return graph.Gather(table, graph.InsertAxes(ids, -1))
}

// crossEntropy returns −log softmax(h·headᵀ)[target] for each row of h [tokens, width], with head [vocabulary, width]
// and targets [tokens].
func crossEntropy(h, head, targets *graph.Node) *graph.Node {
	if engine.OnCPU(h.Graph()) && !engine.InBFloat16(h.Graph()) {
		return crossEntropyByRows(h, head, targets)
	}
	return crossEntropyByMask(h, head, targets)
}

// crossEntropyByMask picks the target's logit by comparing its column with all columns, which costs nothing where
// elementwise operations are fused. The logit is the one in the sum, to the last bit: computed a second time, a rounded
// product could differ. The gradient of a logit is rounded as a whole, so that it vanishes where the prediction is
// certain.
//
// Of the values for all columns only the logits are stored: the backward pass computes probabilities from them, and not
// from the exponentials in the sum.
func crossEntropyByMask(h, head, targets *graph.Node) *graph.Node {
	g := h.Graph()
	logits := timesTransposed(h, head)
	columns := graph.Iota(g, shapes.Make(targets.DType(), logits.Shape().Dimensions...), 1)
	targets = graph.InsertAxes(targets, -1)
	isTarget := graph.Equal(columns, graph.BroadcastToDims(targets, logits.Shape().Dimensions...))
	logTotal, chosen, ok := rowSums(logits, targets)
	if !ok {
		highest := graph.ReduceAndKeep(logits, graph.ReduceMax, -1)
		logTotal = graph.Add(graph.Log(graph.ReduceAndKeep(graph.Exp(graph.Sub(logits, highest)), graph.ReduceSum, -1)), highest)
		chosen = graph.ReduceAndKeep(graph.Where(isTarget, logits, graph.ScalarZero(g, logits.DType())), graph.ReduceSum, -1)
	}
	losses := graph.Squeeze(graph.Sub(logTotal, chosen), -1)
	return autodiff.Custom(losses, []*graph.Node{h, head}, func(dLosses *graph.Node) []*graph.Node {
		dLosses = graph.InsertAxes(dLosses, -1)
		probabilities := graph.Exp(graph.Sub(logits, logTotal))
		dLogits := graph.Mul(graph.Where(isTarget, graph.AddScalar(probabilities, -1), probabilities), dLosses)
		return []*graph.Node{times(dLogits, head), weightGradient(dLogits, h)}
	})
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
