package chat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/cage-qat/cage/internal/inorder"
)

// outcome is what became of a row.
type outcome struct {
	place    string
	document *Document
	dropped  Reason
	bad      error // what is wrong with a row that is skipped
	err      error // that ends the preparation
}

// each makes the documents of rows, on all processors, and hands them over in order. Of
// several errors the first in that order is returned.
func (p *preparation) each(ctx context.Context, list Rows, use func(*Document) error) error {
	work := func(r Row) (outcome, error) { return p.outcome(ctx, r), ctx.Err() }
	return inorder.Run(ctx, list, work, func(o outcome) error {
		if o.err != nil {
			return o.err
		}
		p.counts.add(o)
		if p.options.Progress != nil {
			p.options.Progress(p.counts.Rows)
		}
		if o.document == nil {
			return nil
		}
		return use(o.document)
	})
}

// outcome makes the document of a row.
func (p *preparation) outcome(ctx context.Context, r Row) outcome {
	o := outcome{place: r.Place}
	var c Conversation
	err := r.Err
	if err == nil {
		c, err = ParseRow(r.Text)
	}
	ofRow := err != nil
	if err == nil {
		o.document, err = p.encoder.Encode(ctx, c)
		_, special := errors.AsType[*specialError](err)
		_, long := errors.AsType[*longError](err)
		ofRow = special || long
	}
	dropped, ok := errors.AsType[*Dropped](err)
	switch {
	case ok:
		o.dropped = dropped.Reason
	case err == nil:
	case !ofRow:
		o.err = fmt.Errorf("%s: %w", r.Place, err)
	case p.options.SkipBad:
		o.bad = err
	default:
		o.err = fmt.Errorf("%s: %w; --skip-bad leaves out such rows and counts them", r.Place, err)
	}
	return o
}

// splitSequence keeps the random numbers of the split apart from other uses of a seed.
const splitSequence = 0x63686174_73706c74 // "chatsplt"

// numbered is a document with its random number.
type numbered struct {
	document *Document
	number   uint64
}

// split writes a random share of the documents for validation, and the others for
// training. Each document has a random number, which the seed and its place fix, and goes
// to validation if that is small. The one with the smallest number always does, and the one
// with the largest never: these two are kept back until all are seen.
func (p *preparation) split(ctx context.Context) error {
	rng, limit := rand.NewPCG(p.options.Seed, splitSequence), share(p.options.ValFraction)
	validation, training := write(p.folder.Val), write(p.folder.Train)
	var lowest, highest numbered
	err := p.each(ctx, p.options.Rows, func(d *Document) error {
		n := numbered{d, rng.Uint64()}
		if lowest.document == nil || n.number < lowest.number {
			lowest, n = n, lowest
		}
		if n.document != nil && (highest.document == nil || n.number > highest.number) {
			highest, n = n, highest
		}
		switch {
		case n.document == nil:
			return nil
		case n.number < limit:
			return validation(n.document)
		}
		return training(n.document)
	})
	switch {
	case err != nil:
		return err
	case lowest.document == nil:
		return fmt.Errorf("no conversation can be learned from%s", p.counts.explain())
	case highest.document == nil:
		return errors.New("one conversation cannot be divided into training and validation: give more, or separate ones for validation")
	}
	return errors.Join(validation(lowest.document), training(highest.document))
}
