package bench

import (
	"context"
	"slices"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/resources"
)

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
	p, dev, err := open(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	r.Workload = p.workload(dev)
	var list []variant
	for _, v := range pair {
		lambda := 0.0
		if v.CAGE {
			lambda = cfg.Method.Lambda
		}
		list = append(list, variant{v.String(), p.plan, lambda})
	}
	timings, err := inTurn(ctx, dev, list, cfg.Model.Vocab, o.Rounds)
	if err != nil {
		return nil, err
	}
	out := make([]VariantTiming, len(pair))
	for i, t := range timings {
		out[i] = VariantTiming{Variant: pair[i], Timing: t}
	}
	return out, nil
}
