package bench

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/study/bench/opprofile"
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
	full, err := profilePlan(ctx, dev, plan, cfg, o.Rounds)
	if err != nil {
		return nil, err
	}
	p := &Profile{Build: dev.BuildInfo(), Steps: o.Rounds, Rows: full}
	p.Kinds = opprofile.By(full, func(r opprofile.Row) string { return r.Kind })
	bare := full
	if len(plan.Activations) > 0 && len(plan.Trained()) == 0 {
		plan.Activations = nil
		if bare, err = profilePlan(ctx, dev, plan, cfg, o.Rounds); err != nil {
			return nil, err
		}
	}
	p.Parts = attribute(full, bare, cfg)
	return p, nil
}

// profilePlan returns the processor time of one step by executable and kind.
func profilePlan(ctx context.Context, dev *engine.Device, plan step.Plan, cfg *config.Config, rounds int) ([]opprofile.Row, error) {
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
		subject.Lambda = cfg.Method.Lambda
	}
	state, err := c.NewState(0, tokens(c, cfg.Model.Vocab))
	if err != nil {
		return nil, err
	}
	defer state.Close()
	for round := range 2 { // warms up
		if _, err := timeStep(subject, state, cfg.Model.Vocab, round); err != nil {
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
