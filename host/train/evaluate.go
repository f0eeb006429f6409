package train

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/step"
)

// Evaluate returns the mean loss, in nats per target, over the first batches of a
// sequence (all of them if batches is 0), and the number of targets in that mean. A
// problem without data has no sequence: its loss is that of its one point, and it has no
// targets. Quantizers stay active.
func Evaluate(ctx context.Context, c *step.Compiled, s *step.State, sequence assembly.Sequence, batches int) (loss float64, targets int64, err error) {
	means, err := evaluateFirst(ctx, c, s, sequence, batches)
	if err != nil {
		return 0, 0, err
	}
	return means[0].loss, means[0].targets, nil
}

// mean is a mean loss, of a number of targets.
type mean struct {
	loss    float64
	targets int64
}

// evaluateFirst evaluates over several numbers of first batches, each of which is computed once.
func evaluateFirst(ctx context.Context, c *step.Compiled, s *step.State, sequence assembly.Sequence, batches ...int) ([]mean, error) {
	if sequence == nil {
		loss, err := evaluateProblem(c, s)
		return slices.Repeat([]mean{{loss: loss}}, len(batches)), err
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
	means := slices.Repeat([]mean{{loss: math.NaN()}}, len(batches)) // of no targets
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
				means[j] = mean{total / float64(targets), targets}
			}
		}
	}
	return means, nil
}

// evaluateProblem returns the loss of a problem, which it computes without noise.
func evaluateProblem(c *step.Compiled, s *step.State) (float64, error) {
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
