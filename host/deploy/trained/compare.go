package trained

import (
	"context"
	"fmt"
	"math"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/train/build"
)

// Comparison says how far the predictions of a model, Q, are from those of a reference model, P, for
// the same tokens.
type Comparison struct {
	KL        float64 // mean of KL(P‖Q) over the tokens, in nats
	Agreement float64 // share of the tokens for which both models have the same likeliest token
	Tokens    int64
}

// OpenReference opens the model in dir, with its own quantizers, for [Model.Compare]. It needs the
// vocabulary of t, and at least its context.
func (t *Model) OpenReference(ctx context.Context, dir string, o Options) (*Model, error) {
	if t.data == nil {
		return nil, fmt.Errorf("%s was opened without data", t.Dir)
	}
	o.Like, o.NoData = t, true
	r, err := Open(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	if a, b := r.Config.Model.Vocab, t.Config.Model.Vocab; a != b {
		r.Close()
		return nil, fmt.Errorf("%s has %d tokens, but %s has %d: only predictions for the same tokens "+
			"can be compared", dir, a, t.Dir, b)
	}
	return r, nil
}

// Compare compares the predictions of the model with those of a reference ([Model.OpenReference]),
// over the first batches of the data (all of them if batches is 0). As in [Model.Evaluate], only
// tokens count that training includes in its loss, and they have the same weights.
func (t *Model) Compare(ctx context.Context, reference *Model, batches int) (c Comparison, err error) {
	verification := build.VerifyFiles(t.data)
	defer verification.Close()
	sequence, err := build.OpenSequence(t.Config, t.data, t.built.Compiled.Batch())
	if err != nil {
		return c, err
	}
	own, err := t.openEvaluator()
	if err != nil {
		return c, err
	}
	other, err := reference.openEvaluator()
	if err != nil {
		return c, err
	}
	count := sequence.Batches
	if batches > 0 {
		count = min(count, int64(batches))
	}
	vocab, context := t.Config.Model.Vocab, t.Config.Model.Context
	ids := make([]int32, sequence.Len)
	total := 0.0
	for i := range count {
		if err := ctx.Err(); err != nil {
			return c, fmt.Errorf("comparison: %w", err)
		}
		rows, targets, err := sequence.At(i, ids)
		if err != nil {
			return c, err
		}
		q, err := own.Logits(ids)
		if err != nil {
			return c, err
		}
		p, err := other.Logits(ids)
		if err != nil {
			return c, err
		}
		weight := func(int) float64 { return 1 }
		if len(ids) > t.Config.Train.Batch*(context+1) { // documents, with weights
			list := dataset.RowsOf(ids, context)
			weight = func(k int) float64 { return float64(list[k/context].Weight(k%context + 1)) }
		}
		for k := range rows * context {
			if w := weight(k); w != 0 {
				kl, same := compareLogits(p[k*vocab:][:vocab], q[k*vocab:][:vocab])
				c.KL += w * kl
				if total += w; same {
					c.Agreement += w
				}
			}
		}
		c.Tokens += targets
	}
	c.KL, c.Agreement = c.KL/total, c.Agreement/total
	return c, verification.Wait()
}

// compareLogits returns KL(P‖Q) of the distributions with these logits, and whether both have the
// same likeliest token, which is the first of equal ones.
func compareLogits(p, q []float32) (kl float64, same bool) {
	best, other := 0, 0
	for i := range p {
		if p[i] > p[best] {
			best = i
		}
		if q[i] > q[other] {
			other = i
		}
	}
	var totalP, totalQ, mean float64
	for i := range p {
		x, y := float64(p[i])-float64(p[best]), float64(q[i])-float64(q[other])
		totalQ += math.Exp(y)
		if e := math.Exp(x); e > 0 { // a probability of 0 adds 0
			totalP += e
			mean += e * (x - y)
		}
	}
	return mean/totalP - math.Log(totalP) + math.Log(totalQ), best == other
}
