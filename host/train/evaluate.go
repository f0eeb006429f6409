package train

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/step"
)

// Evaluate returns the mean loss in nats per target over the first batches of a
// sequence, all of it when batches is 0, and the number of targets it is the mean
// of. A problem without data has no sequence: its loss is that of its one point, of no
// targets. Quantizers stay active.
func Evaluate(ctx context.Context, c *step.Compiled, s *step.State, sequence assembly.Sequence, batches int) (loss float64, targets int64, err error) {
	if sequence == nil {
		loss, err = evaluateProblem(c, s)
		return loss, 0, err
	}
	e, err := c.Evaluator(s)
	if err != nil {
		return 0, 0, err
	}
	defer e.Close()
	n := sequence.Batches()
	if batches > 0 {
		n = min(n, int64(batches))
	}
	ids := make([]int32, sequence.BatchLen())
	total := 0.0
	for i := range n {
		if ctx.Err() != nil {
			return 0, 0, fmt.Errorf("evaluation: %w", ctx.Err())
		}
		rows, learned, err := sequence.At(i, ids)
		if err != nil {
			return 0, 0, err
		}
		losses, err := e.Losses(ids)
		if err != nil {
			return 0, 0, err
		}
		for _, l := range losses[:rows*c.Plan().Context] {
			total += float64(l)
		}
		targets += learned
	}
	return total / float64(targets), targets, nil
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
