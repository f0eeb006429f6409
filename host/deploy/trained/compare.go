package trained

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/train/build"
)

// Comparison says how far the predictions of a model, Q, are from those of a reference model, P,
// for the same tokens.
type Comparison struct {
	Loss      float64 // mean of −log Q of the tokens, in nats
	KL        float64 // mean of KL(P‖Q) over the tokens, in nats
	Agreement float64 // share of the tokens for which both models have the same likeliest token
	Tokens    int64
	// Sequences holds KL and Agreement of each sequence. Where sequences have different weights, they
	// are scaled, so that their means are those above.
	Sequences Sequences
}

// Sequences are numbers of a [Comparison], one for each sequence with a token that counts.
type Sequences struct {
	KL        []float64 `json:"kl"`
	Agreement []float64 `json:"agreement"`
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
		return nil, fmt.Errorf("%s has a vocabulary of %d, but %s one of %d: only predictions for the "+
			"same tokens can be compared", dir, a, t.Dir, b)
	}
	return r, nil
}

// Compare compares the predictions of the model with those of a reference ([Model.OpenReference]),
// over the first sequences of the data (all of them if sequences is 0). As in [Model.Evaluate],
// only tokens count that training includes in its loss, and they have the same weights.
func (t *Model) Compare(
	ctx context.Context, reference *Model, sequences int,
) (c Comparison, err error) {
	if t.data == nil {
		return c, fmt.Errorf("%s was opened without data", t.Dir)
	}
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
	left := cmp.Or(sequences, math.MaxInt)
	ids := make([]int32, sequence.Len)
	total := 0.0
	var before struct{ KL, Agreement, total float64 } // at the end of the last sequence
	for i := int64(0); i < sequence.Batches && left > 0; i++ {
		if err := ctx.Err(); err != nil {
			return c, fmt.Errorf("comparison: %w", err)
		}
		rows, _, err := sequence.At(i, ids)
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
		rows = min(rows, left)
		left -= rows
		targets := t.targets(ids, rows)
		vocabulary := t.Config.Model.Vocab
		compared := make([]prediction, len(targets))
		t.built.Device.Parallel(len(targets), func(k int) {
			if first := k * vocabulary; targets[k].weight != 0 {
				compared[k] = compare(p[first:][:vocabulary], q[first:][:vocabulary], targets[k].id)
			}
		})
		for k, target := range targets {
			if target.weight != 0 {
				total += target.weight
				c.Tokens++
				c.Loss += target.weight * compared[k].loss
				c.KL += target.weight * compared[k].kl
				c.Agreement += target.weight * compared[k].agreement
			}
			if (k+1)%(len(targets)/rows) == 0 && total > before.total {
				of := &c.Sequences
				of.KL = append(of.KL, c.KL-before.KL)
				of.Agreement = append(of.Agreement, c.Agreement-before.Agreement)
				before.KL, before.Agreement, before.total = c.KL, c.Agreement, total
			}
		}
	}
	c.Loss, c.KL, c.Agreement = c.Loss/total, c.KL/total, c.Agreement/total
	for i := range c.Sequences.KL {
		c.Sequences.KL[i] *= float64(len(c.Sequences.KL)) / total
		c.Sequences.Agreement[i] *= float64(len(c.Sequences.KL)) / total
	}
	return c, verification.Wait()
}

// target is a token that is predicted, and the weight of its loss.
type target struct {
	id     int32
	weight float64
}

// targets returns the tokens that the first rows of a batch predict.
func (t *Model) targets(batch []int32, rows int) (list []target) {
	context := t.Config.Model.Context
	if size := len(batch) / t.built.Compiled.Batch(); size == context+1 {
		for row := range slices.Chunk(batch[:rows*size], size) {
			for _, id := range row[1:] {
				list = append(list, target{id, 1})
			}
		}
		return list
	}
	for _, row := range dataset.RowsOf(batch, context)[:rows] {
		for position, id := range row.Tokens[1:] {
			list = append(list, target{id, float64(row.Weight(position + 1))})
		}
	}
	return list
}

// prediction compares the predictions of one token: −log Q(target), KL(P‖Q), and 1 if both models
// have the same likeliest token, else 0.
type prediction struct{ loss, kl, agreement float64 }

// compare compares the predictions of a token, given the logits. The likeliest token is the first
// of equal ones.
func compare(p, q []float32, target int32) (c prediction) {
	best, other := 0, 0
	inBlocks(len(p), func(i int) {
		if p[i] > p[best] {
			best = i
		}
		if q[i] > q[other] {
			other = i
		}
	})
	var totalP, totalQ, mean float64
	inBlocks(len(p), func(i int) {
		x, y := float64(p[i])-float64(p[best]), float64(q[i])-float64(q[other])
		totalQ += math.Exp(y)
		if e := math.Exp(x); e > 0 { // a probability of 0 adds 0
			totalP += e
			mean += e * (x - y)
		}
	})
	c.kl = mean/totalP - math.Log(totalP) + math.Log(totalQ)
	c.loss = math.Log(totalQ) + float64(q[other]) - float64(q[target])
	if best == other {
		c.agreement = 1
	}
	return c
}

// inBlocks calls f for 0 to n−1. It clears the upper halves of vector registers again and again,
// because they are in use after each signal by which the runtime preempts a goroutine.
func inBlocks(n int, f func(i int)) {
	const block = 128
	for i := range n {
		if i%block == 0 {
			loops.ClearUpper()
		}
		f(i)
	}
}
