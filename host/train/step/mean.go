package step

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Sequence is what a model is evaluated on, batch by batch. It is used by one goroutine at a
// time.
type Sequence interface {
	// Batches returns the number of batches; the last one may be incomplete.
	Batches() int64
	// BatchLen returns the number of elements in a batch.
	BatchLen() int
	// At fills dst with batch i. It returns how many of its rows count, and the number of
	// targets in them.
	At(i int64, dst []int32) (rows int, targets int64, err error)
}

// Evaluate returns the mean loss, in nats per target, over the first batches of a
// sequence (all of them if batches is 0), and the number of targets in that mean. A
// problem without data has no sequence: its loss is that of its one point, and it has no
// targets. Quantizers stay active.
func Evaluate(ctx context.Context, c *Compiled, s *State, sequence Sequence, batches int) (loss float64, targets int64, err error) {
	means, err := EvaluateFirst(ctx, c, s, sequence, batches)
	if err != nil {
		return 0, 0, err
	}
	return means[0].Loss, means[0].Targets, nil
}

// Mean is a mean loss, of a number of targets.
type Mean struct {
	Loss    float64
	Targets int64
}

// EvaluateFirst evaluates over several numbers of first batches, each of which is computed once.
func EvaluateFirst(ctx context.Context, c *Compiled, s *State, sequence Sequence, batches ...int) ([]Mean, error) {
	if sequence == nil {
		loss, err := evaluateProblem(c, s)
		return slices.Repeat([]Mean{{Loss: loss}}, len(batches)), err
	}
	e, err := c.Evaluator(s)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	ends := make([]int64, len(batches))
	for i, n := range batches {
		ends[i] = sequence.Batches()
		if n > 0 {
			ends[i] = min(ends[i], int64(n))
		}
	}
	means := slices.Repeat([]Mean{{Loss: math.NaN()}}, len(batches)) // of no targets
	ids := make([]int32, sequence.BatchLen())
	total, targets := 0.0, int64(0)
	for i := range slices.Max(ends) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("evaluation: %w", ctx.Err())
		}
		rows, learned, err := sequence.At(i, ids)
		if err != nil {
			return nil, err
		}
		losses, err := e.Losses(ids)
		if err != nil {
			return nil, err
		}
		for _, l := range losses[:rows*c.Plan().Context] {
			total += float64(l)
		}
		targets += learned
		for j, end := range ends {
			if i+1 == end {
				means[j] = Mean{total / float64(targets), targets}
			}
		}
	}
	return means, nil
}

// evaluateProblem returns the loss of a problem, which it computes without noise.
func evaluateProblem(c *Compiled, s *State) (float64, error) {
	e, err := c.Evaluator(s)
	if err != nil {
		return 0, err
	}
	defer e.Close()
	p := c.Plan()
	size := 1
	for _, d := range p.Model.BatchDims(p.Batch, p.Context) {
		size *= d
	}
	losses, err := e.Losses(make([]int32, size))
	if err != nil {
		return 0, err
	}
	return float64(losses[0]), nil
}
