package model

import (
	"fmt"
	"math"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
)

// On the CPU the losses of rows of logits, and the gradients with respect to these, are computed in one pass through the caches. As a
// program over rows, which knows no lookup, each column would be compared with the target.

// nativeLosses returns log Σ exp(logits) − logits[target] of each row, [tokens, 1], and the gradient with respect to the logits of
// the losses times their factors, in the precision of the device. targets and factors are [tokens, 1].
func nativeLosses(logits, targets, factors *graph.Node) (losses, dLogits *graph.Node) {
	r := rowsOfLogits(logits)
	gradient := shapes.Make(dtypes.Float32, logits.Shape().Dimensions...)
	if engine.InBFloat16(logits.Graph()) {
		gradient.DType = dtypes.BFloat16
	}
	each := shapes.Make(dtypes.Float32, targets.Shape().Dimensions...)
	results := engine.Native{Name: "losses", Outputs: []shapes.Shape{each, gradient}, Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
		targets, factors, losses := in[1].Flat.([]int32), in[2].Flat.([]float32), out[0].Flat.([]float32)
		return r.each(in[0], targets, parallel, func(i int, logits, scratch []float32) {
			exponentials := scratch
			whole, isFloat32 := out[1].Flat.([]float32)
			if isFloat32 {
				exponentials = whole[i*r.vocabulary:][:r.vocabulary]
			}
			highest, sum := softmaxParts(exponentials, logits)
			losses[i] = float32(math.Log(float64(sum))) + highest - logits[targets[i]]
			// Where the prediction is certain, exponential and sum are 1 and the gradient is 0.
			loops.BinaryS(loops.Mul, exponentials, exponentials, factors[i]/sum)
			exponentials[targets[i]] -= factors[i]
			if !isFloat32 {
				loops.ToBFloat16(out[1].Flat.([]uint16)[i*r.vocabulary:][:r.vocabulary], exponentials)
			}
		})
	}}.Call(logits, targets, factors)
	return results[0], graph.ConvertDType(results[1], dtypes.Float32)
}

// nativeSums returns log Σ exp(logits) and logits[target] of each row, [tokens, 1] each.
func nativeSums(logits, targets *graph.Node) (logTotal, chosen *graph.Node) {
	r := rowsOfLogits(logits)
	each := shapes.Make(dtypes.Float32, targets.Shape().Dimensions...)
	sums := engine.Native{Name: "sums of losses", Outputs: []shapes.Shape{each, each}, Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
		targets, logTotal, chosen := in[1].Flat.([]int32), out[0].Flat.([]float32), out[1].Flat.([]float32)
		return r.each(in[0], targets, parallel, func(i int, logits, scratch []float32) {
			highest, sum := softmaxParts(scratch, logits)
			logTotal[i], chosen[i] = float32(math.Log(float64(sum)))+highest, logits[targets[i]]
		})
	}}.Call(logits, targets)
	return sums[0], sums[1]
}

// softmaxParts returns the largest of some logits, and the sum of the exponentials of their distances to it, which it stores.
func softmaxParts(exponentials, logits []float32) (highest, sum float32) {
	var one [1]float32
	loops.GroupFold(loops.Max, one[:], logits, len(logits))
	highest = one[0]
	loops.ExpLin(exponentials, logits, 1, highest)
	loops.GroupFold(loops.Add, one[:], exponentials, len(exponentials))
	return highest, one[0]
}

// logitRows goes over the rows of logits.
type logitRows struct {
	vocabulary int
	scratch    sync.Pool // of a row each
}

func rowsOfLogits(logits *graph.Node) *logitRows {
	r := &logitRows{vocabulary: logits.Shape().Dim(1)}
	r.scratch.New = func() any { return make([]float32, r.vocabulary) }
	return r
}

// each calls f with each row of logits, several at once, and memory for a row. It is an error if a target is no column.
func (r *logitRows) each(logits engine.Tensor, targets []int32, parallel engine.Parallel, f func(i int, logits, scratch []float32)) error {
	for i, target := range targets {
		if target < 0 || int(target) >= r.vocabulary {
			return fmt.Errorf("target %d of %d columns is %d", i, r.vocabulary, target)
		}
	}
	const elements = 1 << 15 // of a task
	all, rows := logits.Flat.([]float32), max(1, elements/r.vocabulary)
	parallel((len(targets)+rows-1)/rows, func(task int) {
		scratch := r.scratch.Get().([]float32)
		defer r.scratch.Put(scratch)
		for i := task * rows; i < min((task+1)*rows, len(targets)); i++ {
			f(i, all[i*r.vocabulary:(i+1)*r.vocabulary], scratch)
		}
	})
	return nil
}
