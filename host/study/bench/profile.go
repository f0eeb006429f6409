package bench

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/study/bench/opprofile"
	"github.com/cage-qat/cage/host/study/bench/peak"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
)

// Profile says where the processor time of a step goes. All times are seconds of
// one core per step.
type Profile struct {
	Build engine.BuildInfo `json:"build"`
	Steps int              `json:"steps"`
	// Rows are the times by executable and kind of operation, Kinds those by kind alone.
	Rows  []opprofile.Row `json:"rows"`
	Kinds []opprofile.Row `json:"kinds"`
	// Parts are the times by who wrote the program: the model, each plugin, the host.
	Parts []opprofile.Row `json:"parts"`
	// Peaks are operations per second of an instruction on one thread, of those that Products name; without those of which
	// there is no measurement.
	Peaks    map[string]float64 `json:"peaks"`
	Products []Reached          `json:"products"`
}

// Reached says how near to the peaks of its instructions a kind of operation comes, of those that multiply matrices.
type Reached struct {
	Kind string `json:"kind"`
	// Operations are the multiplications and additions of one step by the instruction that multiplies, counted as the
	// products ran.
	Operations map[string]float64 `json:"operations"`
	// Rate is operations per second of processor time.
	Rate float64 `json:"rate"`
	// Share is the time that the operations take at the peaks, as a part of the processor time of the kind; 0 if a peak
	// is not known.
	Share float64 `json:"share_of_peak,omitempty"`
}

// ProfileStep samples o.Rounds steps with the correction, and as many without the
// quantizers of activations. These are compiled into the forward and backward pass; their
// share is the time that leaving them out saves.
func ProfileStep(ctx context.Context, cfg *config.Config, o Options) (*Profile, error) {
	ready, dev, err := openStep(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	plan := ready.plan
	plan.Dispatch = o.Dispatch
	products := newCounts(dev)
	full, err := profilePlan(ctx, dev, plan, cfg, o.Rounds, products)
	if err != nil {
		return nil, err
	}
	p := &Profile{Build: dev.BuildInfo(), Steps: o.Rounds, Rows: full}
	p.Kinds = opprofile.By(full, func(r opprofile.Row) string { return r.Kind })
	if err := p.addProducts(ctx, products.byKind); err != nil {
		return nil, err
	}
	bare := full
	if len(plan.Activations) > 0 && len(plan.Trained()) == 0 {
		plan.Activations = nil
		if bare, err = profilePlan(ctx, dev, plan, cfg, o.Rounds, nil); err != nil {
			return nil, err
		}
	}
	p.Parts = attribute(full, bare, cfg)
	return p, nil
}

// profilePlan returns the processor time of one step by executable and kind. If products is not nil, it counts those of one
// step.
func profilePlan(ctx context.Context, dev *engine.Device, plan step.Plan, cfg *config.Config, rounds int, products *counts) ([]opprofile.Row, error) {
	c, err := step.Compile(dev, plan)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := loadTeacher(c); err != nil {
		return nil, err
	}
	subject := Subject{Name: "profile", Compiled: c}
	if len(plan.Weights) > 0 {
		subject.Lambda = cfg.Method.CAGE.Lambda
	}
	state, err := c.NewState(0, tokens(c, cfg.Model.Vocab))
	if err != nil {
		return nil, err
	}
	defer state.Close()
	for round := range 2 { // warms up
		stop := func() error { return nil }
		if round == 1 && products != nil { // counting takes time: not in a step that is sampled
			stop = products.start(dev)
		}
		_, err := timeStep(subject, state, cfg.Model.Vocab, round)
		if err := errors.Join(err, stop()); err != nil {
			return nil, err
		}
	}
	rows, err := opprofile.Measure(ctx, func(ctx context.Context) error {
		for round := range rounds {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := timeStep(subject, state, cfg.Model.Vocab, 2+round); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range rows {
		rows[i].Seconds /= float64(rounds)
	}
	return rows, err
}

// counts are the multiplications and additions of products by kind of operation and by instruction.
type counts struct {
	mu      sync.Mutex
	byKind  map[string]map[string]float64
	library string // the instruction of products that the library computes
	err     error
}

func newCounts(dev *engine.Device) *counts {
	return &counts{byKind: map[string]map[string]float64{}, library: peak.Float32Instruction(dev.BuildInfo())}
}

// start counts until stop is called: the products of package matmul when they run, and those of the library by the sizes that
// executables have, when these run.
func (c *counts) start(dev *engine.Device) (stop func() error) {
	if dev.Kind() != device.CPU {
		return func() error { return nil }
	}
	stopProducts := matmul.Watch(func(instruction string, operations float64) {
		c.add(opprofile.KindOfCaller(), instruction, operations)
	})
	stopRuns := dev.Watch(func(e *engine.Executable) {
		operations, err := e.DotOperations()
		c.add(opprofile.Products, c.library, operations)
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.err = err
		}
	})
	return func() error {
		stopProducts()
		stopRuns()
		return c.err
	}
}

func (c *counts) add(kind, instruction string, operations float64) {
	if operations == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKind[kind] == nil {
		c.byKind[kind] = map[string]float64{}
	}
	c.byKind[kind][instruction] += operations
}

// addProducts measures the peaks, and compares the processor times of the kinds with them.
func (p *Profile) addProducts(ctx context.Context, byKind map[string]map[string]float64) error {
	const runs, least = 100, 2 * time.Millisecond
	list, err := peak.Instructions(ctx, runs, least)
	if err != nil {
		return err
	}
	peaks := map[string]float64{}
	for _, n := range list {
		peaks[n.Name] = n.Rates[0].Best
	}
	p.Peaks = map[string]float64{}
	for _, row := range p.Kinds {
		operations, ok := byKind[row.Kind]
		if !ok {
			continue
		}
		all, atPeak := 0.0, 0.0 // seconds; infinite if there is no peak
		for instruction, n := range operations {
			all, atPeak = all+n, atPeak+n/peaks[instruction]
			if peaks[instruction] > 0 {
				p.Peaks[instruction] = peaks[instruction]
			}
		}
		r := Reached{Kind: row.Kind, Operations: operations, Rate: all / row.Seconds}
		if !math.IsInf(atPeak, 0) {
			r.Share = atPeak / row.Seconds
		}
		p.Products = append(p.Products, r)
	}
	return nil
}

// attribute adds up the time of executables by who wrote their programs.
func attribute(full, bare []opprofile.Row, cfg *config.Config) []opprofile.Row {
	weights, activations := "quantizer of weights", "quantizer of activations"
	if q := cfg.Quantizer.Weights; q != nil {
		weights += ", " + q.Name
	}
	if q := cfg.Quantizer.Activations; q != nil {
		activations += ", " + q.Name
	}
	part := func(r opprofile.Row) string {
		switch {
		case r.Executable == "quantize" || r.Executable == "finish":
			return weights
		case strings.HasPrefix(r.Executable, "update"), strings.HasPrefix(r.Executable, "observe"), r.Kind == opprofile.Host:
			return "optimizer, " + cfg.Optimizer.Name + ", with the method"
		case strings.HasSuffix(r.Executable, "gradient"):
			return "model"
		}
		return "host"
	}
	list := opprofile.By(full, part)
	saved := 0.0
	for _, r := range opprofile.By(bare, part) {
		if r.Kind == "model" {
			saved = r.Seconds
		}
	}
	for i, r := range list {
		if r.Kind == "model" && saved > 0 && saved < r.Seconds {
			list[i].Seconds = saved
			list = append(list, opprofile.Row{Kind: activations, Seconds: r.Seconds - saved})
			break
		}
	}
	slices.SortStableFunc(list, func(a, b opprofile.Row) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return list
}
