package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/resources"
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
	var first *preparedStep
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
	timings, err := measureInTurn(ctx, dev, list, first.config.Model.Vocab, o.Rounds)
	if err != nil {
		return nil, err
	}
	out := make([]PairTiming, len(pairs))
	for i, t := range timings {
		out[i] = PairTiming{pairs[i], t}
	}
	return out, nil
}

// Variant is one variant of a step in the overhead table (CAGE paper, Appendix "Training
// Overheads").
type Variant struct {
	Rotation bool `json:"rotation"` // the quantizer rotates
	CAGE     bool `json:"cage"`     // λ_t > 0
}

func (v Variant) String() string {
	name := "QuEST"
	if v.CAGE {
		name = "CAGE"
	}
	if v.Rotation {
		return name + " with rotation"
	}
	return name + " without rotation"
}

// Variants lists the rows of the table, each CAGE row after the QuEST row with which it
// is compared.
func Variants() []Variant {
	return []Variant{{false, false}, {false, true}, {true, false}, {true, true}}
}

// VariantTiming is the cost of one variant.
type VariantTiming struct {
	Variant
	Timing
	// PeakMemory is the largest resident size of a process that runs only this variant,
	// in bytes; 0 if it was not measured.
	PeakMemory int64 `json:"peak_memory_bytes"`
}

// OverheadReport is the overhead table. Ratios are relative to the variant without CAGE
// and with the same rotation.
type OverheadReport struct {
	Workload
	Variants []VariantTiming `json:"variants"`
}

// Overhead measures the variants in pairs, without and with CAGE in turn. configure makes
// the configuration of a variant; all must have the same sizes.
func Overhead(ctx context.Context, configure func(Variant) (*config.Config, error), variants []Variant, o Options) (*OverheadReport, error) {
	report := &OverheadReport{}
	for _, rotation := range []bool{false, true} {
		pair := slices.DeleteFunc(slices.Clone(variants), func(v Variant) bool { return v.Rotation != rotation })
		if len(pair) == 0 {
			continue
		}
		timings, err := report.measure(ctx, configure, pair, o)
		if err != nil {
			return nil, err
		}
		report.Variants = append(report.Variants, timings...)
	}
	if len(report.Variants) == 1 {
		report.Variants[0].PeakMemory = resources.PeakMemory()
	}
	return report, nil
}

// measure runs variants with the same quantizer in turn.
func (r *OverheadReport) measure(ctx context.Context, configure func(Variant) (*config.Config, error), pair []Variant, o Options) ([]VariantTiming, error) {
	cfg, err := configure(pair[0])
	if err != nil {
		return nil, err
	}
	p, dev, err := openStep(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	r.Workload = p.workload(dev)
	var list []variant
	for _, v := range pair {
		lambda := 0.0
		if v.CAGE {
			lambda = cfg.Method.CAGE.Lambda
		}
		list = append(list, variant{v.String(), p.plan, lambda})
	}
	timings, err := measureInTurn(ctx, dev, list, cfg.Model.Vocab, o.Rounds)
	if err != nil {
		return nil, err
	}
	out := make([]VariantTiming, len(pair))
	for i, t := range timings {
		out[i] = VariantTiming{Variant: pair[i], Timing: t}
	}
	return out, nil
}
