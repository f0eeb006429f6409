package bench

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
)

// Pair names a quantizer and an optimizer.
type Pair struct {
	Quantizer string `json:"quantizer"`
	Optimizer string `json:"optimizer"`
}

// MatrixReport holds the step times of quantizers and of optimizers; each list is
// relative to its first entry.
type MatrixReport struct {
	Workload
	Quantizers []PairTiming `json:"quantizers"`
	Optimizers []PairTiming `json:"optimizers"`
}

// PairTiming is the timing of one pair.
type PairTiming struct {
	Pair
	Timing
}

// Matrix measures every quantizer with the first optimizer, and every optimizer with the
// quantizer base. configure makes the configuration of a pair; all must have the same
// model and data shape. If rounds is a multiple of the refresh interval, the mean
// contains the right share of refreshes.
func Matrix(ctx context.Context, configure func(Pair) (*config.Config, error), quantizers, optimizers []string, base string, o Options) (*MatrixReport, error) {
	report := &MatrixReport{}
	var rows, columns []Pair
	for _, q := range quantizers {
		rows = append(rows, Pair{q, optimizers[0]})
	}
	for _, opt := range optimizers {
		columns = append(columns, Pair{base, opt})
	}
	var err error
	if report.Quantizers, err = report.measure(ctx, configure, rows, o); err != nil {
		return nil, err
	}
	report.Optimizers, err = report.measure(ctx, configure, columns, o)
	return report, err
}

// measure runs the pairs in turn.
func (r *MatrixReport) measure(ctx context.Context, configure func(Pair) (*config.Config, error), pairs []Pair, o Options) ([]PairTiming, error) {
	var list []variant
	var first *prepared
	for _, pair := range pairs {
		cfg, err := configure(pair)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", pair.Quantizer, pair.Optimizer, err)
		}
		p, err := prepare(ctx, cfg, o)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", pair.Quantizer, pair.Optimizer, err)
		}
		if first == nil {
			first = p
		}
		p.plan.Stacking = o.Stacking
		list = append(list, variant{name: pair.Quantizer + " + " + pair.Optimizer, plan: p.plan})
	}
	dev, err := assembly.Device(first.config, o.warn())
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	r.Workload = first.workload(dev)
	timings, err := inTurn(ctx, dev, list, first.config.Model.Vocab, o.Rounds)
	if err != nil {
		return nil, err
	}
	out := make([]PairTiming, len(pairs))
	for i, t := range timings {
		out[i] = PairTiming{pairs[i], t}
	}
	return out, nil
}
