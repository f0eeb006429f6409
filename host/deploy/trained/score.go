package trained

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/host/train/step"
)

// scoredTokens returns the number of tokens that are scored at once: enough to keep the device
// busy.
func (t *Model) scoredTokens() int {
	least := 1 << 10
	if t.Config.Device.Kind != device.CPU {
		least = 1 << 14
	}
	return score.Tokens(t.Config.Model.Context, least)
}

// Score computes log-probabilities of continuations, with the run's quantizers. The model must have
// been opened with Options.Score.
//
// Requests are scored in batches ([score.Batches]). In float32, requests with the same context can
// share a row of a batch, which then contains that context only once. The same requests form the
// same batches on all devices of the same kind and precision, so that interrupted work can be
// continued.
//
// A batch is omitted if skip is not nil and returns true for all its requests. Score calls each for
// every batch, with the indices of its requests and their scores.
func (t *Model) Score(ctx context.Context, requests []score.Request, skip func(request int) bool,
	each func(which []int, scores []score.Score) error) error {
	for i, r := range requests {
		if err := errors.Join(t.checkIDs(i, r.Context), t.checkIDs(i, r.Continuation)); err != nil {
			return err
		}
	}
	share := t.Config.Device.Precision == device.Float32
	return t.scoreBatches(ctx, requests, share, skip,
		func(b *score.Batch, logProbs []float32, likeliest []bool) error {
			return each(b.Requests, b.Scores(logProbs, likeliest))
		})
}

// LogProbs computes the log-probability, in nats, of each token of a sequence given the previous
// ones, with the run's quantizers: n−1 numbers for n tokens. A sequence has at least two tokens,
// and at most one more than the context, because the last one is only predicted. The model must
// have been opened with Options.Score.
func (t *Model) LogProbs(ctx context.Context, sequences [][]int32) ([][]float32, error) {
	requests := make([]score.Request, len(sequences))
	for i, ids := range sequences {
		if err := t.checkIDs(i, ids); err != nil {
			return nil, err
		}
		if most := t.Context() + 1; len(ids) < 2 || len(ids) > most {
			return nil, fmt.Errorf("%s: sequence %d has %d tokens: want 2 to %d",
				t.Dir, i, len(ids), most)
		}
		requests[i] = score.Request{Context: ids[:1], Continuation: ids[1:]}
	}
	list := make([][]float32, len(sequences))
	return list, t.scoreBatches(ctx, requests, false, nil,
		func(b *score.Batch, logProbs []float32, _ []bool) error {
			for i, of := range b.Split(logProbs) {
				list[b.Requests[i]] = of
			}
			return nil
		})
}

// scoreBatches computes, batch by batch, the log-probability of each target of the requests, and
// whether it is the likeliest token. If share is set, requests with the same context can share a
// row.
func (t *Model) scoreBatches(
	ctx context.Context, requests []score.Request, share bool, skip func(request int) bool,
	each func(b *score.Batch, logProbs []float32, likeliest []bool) error,
) error {
	if err := t.checkLanguage(); err != nil {
		return err
	}
	batches, err := score.Batches(requests, t.scoredTokens(), t.Config.Model.Context, share)
	if err != nil {
		return err
	}
	e, err := t.openEvaluator()
	if err != nil {
		return err
	}
	for _, b := range batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		if skip != nil && !slices.ContainsFunc(b.Requests, func(i int) bool { return !skip(i) }) {
			continue
		}
		logProbs, likeliest, err := e.Scores(step.Scored{
			Rows: b.Rows, Length: b.Length, Tokens: b.Tokens, Lengths: b.Lengths, Places: b.Indices,
			Targets: b.Targets, Positions: b.Positions, Parts: b.Parts})
		if err != nil {
			return err
		}
		if err := each(&b, logProbs, likeliest); err != nil {
			return err
		}
	}
	return nil
}

func (t *Model) checkIDs(sequence int, ids []int32) error {
	for _, id := range ids {
		if id < 0 || int(id) >= t.Config.Model.Vocab {
			return fmt.Errorf("%s: sequence %d has the token %d, but the model has %d tokens",
				t.Dir, sequence, id, t.Config.Model.Vocab)
		}
	}
	return nil
}

// openEvaluator returns the model's evaluator, which quantizes the weights only once.
func (t *Model) openEvaluator() (*step.Evaluator, error) {
	if t.evaluator == nil {
		var err error
		if t.evaluator, err = t.built.Compiled.Evaluator(t.state); err != nil {
			return nil, err
		}
	}
	return t.evaluator, nil
}
