package assembly

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/method/cage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
)

// Plan makes the plan of a training step. If the programs do not include an optimizer, it
// is the plan of an evaluation, with which nothing must be trained.
func Plan(cfg *config.Config, m model.Model, programs *Programs) (step.Plan, error) {
	plan := step.Plan{
		Model: m, Batch: ReplicaBatch(cfg), Context: cfg.Model.Context, Accumulate: cfg.Train.Accumulate,
		Form: cfg.Method.Form, Variant: cfg.Method.Variant, Clip: cfg.Train.Clip,
		RefreshDelay: map[string]int{},
		Rotations:    step.Rotations(cfg.Train.Rotations),
	}
	var err error
	var regularizer *cage.Lotion
	if !programs.Forward {
		if plan.Distillation, err = distillation(cfg); err != nil {
			return plan, err
		}
		if plan.FullPrecision, regularizer, err = fullPrecision(cfg, programs); err != nil {
			return plan, err
		}
	}
	if plan.Weights, err = quantizers(programs.Weights); err != nil {
		return plan, err
	}
	if plan.Activations, err = quantizers(programs.Activations); err != nil {
		return plan, err
	}
	for tokens, list := range programs.Pieces {
		if plan.Pieces == nil {
			plan.Pieces = map[int]map[string]lower.Quantizer{}
		}
		if plan.Pieces[tokens], err = quantizers(list); err != nil {
			return plan, err
		}
	}
	addRules(&plan, cfg, programs, regularizer)
	return plan, nil
}

// fullPrecision reports whether gradients are computed with unquantized weights. Training with LOTION does that: its
// settings are returned, too, and are nil without it. An evaluation has no gradients, so that it may use other quantizers
// than the training.
func fullPrecision(cfg *config.Config, programs *Programs) (bool, *cage.Lotion, error) {
	if cfg.Method.Name == cage.MethodLOTION {
		regularizer, err := lotionMethod(cfg, programs)
		return true, regularizer, err
	}
	if cfg.Method.Gradient == cage.FullGradient {
		return true, nil, noTrained(cfg, "method.gradient", programs)
	}
	return false, nil, nil
}

// addRules adds the update rules of all tensors that are trained.
func addRules(plan *step.Plan, cfg *config.Config, programs *Programs, regularizer *cage.Lotion) {
	for _, t := range programs.Tensors {
		rule := cage.Rule{ // its form is Off until a step with λ > 0 takes the plan's: step.Plan.rules
			Name: t.Name, Shape: t.Shape, Optimizer: t.Optimizer, Clip: cfg.Train.Clip > 0,
			Decay: t.Decay, DecayLast: cfg.Train.Decay == config.DecayLast, RateFactor: t.RateFactor, Form: cage.Off, Variant: plan.Variant, Lotion: regularizer,
		}
		if q, ok := programs.Weights[t.Name]; ok {
			rule.Quantizer = &q
		}
		plan.Rules = append(plan.Rules, rule)
		if t.RefreshDelay > 0 {
			plan.RefreshDelay[t.Name] = t.RefreshDelay
		}
	}
}

// lotionMethod returns the settings of LOTION, which computes gradients with unquantized weights and quantizes weights
// only.
func lotionMethod(cfg *config.Config, programs *Programs) (*cage.Lotion, error) {
	if len(programs.Activations) > 0 {
		e := cfg.ErrorAt("method.name", "LOTION is for weights only, but activations are quantized")
		e.Hint = `configure [quantizer.weights] alone`
		return nil, e
	}
	if err := noTrained(cfg, "method.name", programs); err != nil {
		return nil, err
	}
	m := cfg.Method.Lotion()
	return &m, nil
}

// noTrained refuses quantizers with trained parameters: without quantization in the forward pass they have no gradients.
func noTrained(cfg *config.Config, key string, programs *Programs) error {
	for _, list := range []map[string]sdk.QuantizerProgram{programs.Weights, programs.Activations} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if len(list[name].Trained) > 0 {
				return cfg.ErrorAt(key, "gradients are taken in full precision, but the quantizer of %s has trained parameters", name)
			}
		}
	}
	return nil
}

func quantizers(programs map[string]sdk.QuantizerProgram) (map[string]lower.Quantizer, error) {
	out := make(map[string]lower.Quantizer, len(programs))
	for name, p := range programs {
		q, err := lower.NewQuantizer(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = q
	}
	return out, nil
}
