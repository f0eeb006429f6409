package train

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/step"
)

// Evaluate returns the mean loss in nats per token over the first batches of a
// token file, all of it when batches is 0, and the number of tokens it is the mean
// of. A problem without data has no file: its loss is that of its one point, of no
// tokens. Quantizers stay active. Windows follow each other without overlap; a last
// batch that is not full counts with the windows it has.
func Evaluate(ctx context.Context, k *step.Kernels, s *step.State, file *data.File, batches int) (loss float64, tokens int64, err error) {
	if file == nil {
		loss, err = evaluateProblem(k, s)
		return loss, 0, err
	}
	p := k.Plan()
	reader, err := data.NewSequential(file, p.Context, k.Batch())
	if err != nil {
		return 0, 0, err
	}
	e, err := k.Evaluator(s)
	if err != nil {
		return 0, 0, err
	}
	defer e.Close()
	n := reader.Batches()
	if batches > 0 {
		n = min(n, int64(batches))
	}
	ids := make([]int32, reader.BatchLen())
	total := 0.0
	for i := range n {
		if ctx.Err() != nil {
			return 0, 0, fmt.Errorf("evaluation: %w", ctx.Err())
		}
		rows, err := reader.At(i, ids)
		if err != nil {
			return 0, 0, err
		}
		losses, err := e.Losses(ids)
		if err != nil {
			return 0, 0, err
		}
		for _, l := range losses[:rows*p.Context] {
			total += float64(l)
		}
		tokens += int64(rows * p.Context)
	}
	return total / float64(tokens), tokens, nil
}

// evaluateProblem returns the loss of a problem, which it computes without noise.
func evaluateProblem(k *step.Kernels, s *step.State) (float64, error) {
	e, err := k.Evaluator(s)
	if err != nil {
		return 0, err
	}
	defer e.Close()
	p := k.Plan()
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
