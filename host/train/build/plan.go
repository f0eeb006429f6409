package build

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Plan returns the plan of a training step. If programs.Forward is set, it is a plan for evaluation
// only.
func Plan(cfg *config.Config, m model.Model, programs *Programs) (step.Plan, error) {
	plan := step.Plan{
		Model: m, Batch: ReplicaBatch(cfg), Context: cfg.Model.Context, Accumulate: cfg.Train.Accumulate,
		Clip: cfg.Train.Clip, Seed: uint64(cfg.Seed),
		RefreshDelay:  map[string]int{},
		Backward:      map[step.OperandSite]fakequant.Operand{},
		Pieces:        map[int]map[string]*fakequant.Quantizer{},
		Shard:         cfg.Device.Shard,
		Unquantized:   cfg.Train.Requantize == "off",
		FullRotations: cfg.Train.Rotations == "full",
	}
	if !programs.Forward {
		if plan.Adapters = cfg.Adapters.Of(cfg.Model); cfg.Adapters.Base == lora.BFloat16 {
			plan.FrozenStorage = sdk.StoreBFloat16
		}
	}
	var err error
	if plan.Packed, err = packed(cfg, programs); err != nil {
		return plan, err
	}
	weights := programs.Weights
	var original map[string]*cage.Weight
	if !programs.Forward {
		if plan.Distillation, err = distillation(cfg); err != nil {
			return plan, err
		}
		if plan.FullPrecision, err = fullPrecision(cfg, programs); err != nil {
			return plan, err
		}
		if weights, original, err = forward(cfg, weights); err != nil {
			return plan, err
		}
	}
	if plan.Weights, err = quantizers(weights); err != nil {
		return plan, err
	}
	if plan.Activations, err = quantizers(programs.Activations); err != nil {
		return plan, err
	}
	for site, p := range programs.Backward {
		if plan.Backward[site], err = fakequant.NewOperand(p); err != nil {
			return plan, fmt.Errorf("%s: %w", site, err)
		}
	}
	for tokens, list := range programs.Pieces {
		if plan.Pieces[tokens], err = quantizers(list); err != nil {
			return plan, err
		}
	}
	groups := map[string]string{} // group of each table
	method := cfg.ResolvedMethod().Method()
	for _, t := range programs.Tensors {
		if !t.Frozen && groups[t.Table] == "" {
			groups[t.Table] = fmt.Sprint(len(groups) + 1)
		}
		rule := cage.Rule{
			Name: t.Name, Shape: t.Shape, Optimizer: t.Optimizer, Group: groups[t.Table],
			Clip: cfg.Train.Clip > 0, Decay: t.Decay, DecayLast: cfg.Train.Decay == config.DecayLast,
			RateFactor: t.RateFactor, Constrain: t.Constrain, Frozen: t.Frozen,
		}
		if !programs.Forward {
			rule.Average = t.average(cfg)
		}
		quantized := t.Name
		if t.FactorOf != "" {
			rule.Factor, quantized = true, t.FactorOf
		}
		if q, ok := programs.Weights[quantized]; ok {
			rule.Method = method
			if !rule.Factor {
				rule.Quantizer, rule.Weight = &q, original[t.Name]
			}
			if cfg.Method.CAGE.Strength != nil && t.Optimizer.Rate != nil {
				return plan, cfg.ErrorAt("method.strength", "λ cannot be computed from it: the "+
					"optimizer of %s chooses its learning rate while it trains", t.Name).
					WithHint("want method.lambda instead")
			}
		}
		plan.Rules = append(plan.Rules, rule)
		if t.RefreshDelay > 0 {
			plan.RefreshDelay[t.Name] = t.RefreshDelay
		}
	}
	return plan, nil
}

// fullPrecision reports whether gradients are computed with unquantized weights, because of the
// method or method.gradient. It returns an error if a quantizer does not allow that.
func fullPrecision(cfg *config.Config, programs *Programs) (bool, error) {
	key, byMethod := "method.gradient", cfg.Method.Method().FullPrecision()
	if byMethod {
		key = "method.name"
	}
	if !byMethod && cfg.Method.Gradient != cage.FullGradient {
		return false, nil
	}
	const full = "gradients are taken in full precision"
	if len(programs.Backward) > 0 {
		role := "gradients"
		if cfg.Quantizer.Gradients == nil {
			role = "backward"
		}
		return true, cfg.ErrorAt(key, "%s, but the products of the backward pass are quantized", full).
			WithHint("leave [quantizer." + role + "] out")
	}
	if byMethod && len(programs.Activations) > 0 {
		title := cfg.Method.Title()
		return true, cfg.ErrorAt(key, "%s is for weights only, but activations are quantized", title).
			WithHint(`configure [quantizer.weights] alone`)
	}
	// Without quantization in the forward pass, trained parameters get no gradients, and states are
	// not updated.
	for _, list := range []map[string]spec.Quantizer{programs.Weights, programs.Activations} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			what := "trained parameters"
			if len(list[name].Trained) == 0 {
				what = "state"
			}
			if len(list[name].Trained)+len(list[name].State) > 0 {
				return true, cfg.ErrorAt(key, "%s, but the quantizer of %s has %s", full, name, what)
			}
		}
	}
	return true, nil
}

func nameless(p *program.Program) string {
	q := *p
	q.Name = ""
	return q.Hash()
}

// forward returns the weights' quantizers in training. If the method is a [cage.Forwarder], it has
// modified them, and weights holds a [cage.Weight] with the original quantizer for each weight.
// Weights whose quantizers have equal programs share both.
func forward(
	cfg *config.Config, quantizers map[string]spec.Quantizer,
) (out map[string]spec.Quantizer, weights map[string]*cage.Weight, err error) {
	m, ok := cfg.Method.Method().(cage.Forwarder)
	if !ok {
		return quantizers, nil, nil
	}
	alike, changed := map[string]*cage.Weight{}, map[string]spec.Quantizer{}
	out, weights = map[string]spec.Quantizer{}, map[string]*cage.Weight{}
	for _, name := range slices.Sorted(maps.Keys(quantizers)) {
		q := quantizers[name]
		key := nameless(q.Program) + nameless(q.ForEvaluation().Program)
		if alike[key] == nil {
			rotation := passes.EndingRotation(q.ForEvaluation().Program, spec.OutputValue)
			w := &cage.Weight{Quantizer: q, Rotation: rotation, Unpack: q.Unpack}
			if w.Rotation > 1 && w.Unpack != nil {
				if w.Unpack, err = passes.UndoRotation(w.Unpack, w.Rotation, spec.OutputValue); err != nil {
					return nil, nil, fmt.Errorf("%s: %w", name, err)
				}
			}
			if changed[key], err = m.Forward(w, cfg.Train.Steps); err != nil {
				return nil, nil, cfg.ErrorAt("method.name", "%s cannot train %s: %w",
					cfg.Method.Title(), name, err)
			}
			alike[key] = w
		}
		weights[name], out[name] = alike[key], changed[key]
		if out[name].Program == weights[name].Quantizer.Program {
			out[name] = q
		}
	}
	return out, weights, nil
}

// packed returns how weights are stored if adapters.base is [lora.Codes].
func packed(cfg *config.Config, programs *Programs) (map[string]*fakequant.Packed, error) {
	list := map[string]*fakequant.Packed{}
	if programs.Forward || cfg.Adapters.Rank == 0 || cfg.Adapters.Base != lora.Codes {
		return list, nil
	}
	const key = "adapters.base"
	for _, name := range slices.Sorted(maps.Keys(programs.Weights)) {
		p, err := fakequant.NewPacked(programs.Weights[name], programs.scales[name])
		if err != nil {
			return nil, cfg.ErrorAt(key, "%s cannot be stored as codes: %w", name, err)
		}
		list[name] = p
	}
	if len(list) == 0 {
		return nil, cfg.ErrorAt(key, "found %q, but no weight has a quantizer", lora.Codes)
	}
	return list, nil
}

func quantizers(programs map[string]spec.Quantizer) (map[string]*fakequant.Quantizer, error) {
	out := make(map[string]*fakequant.Quantizer, len(programs))
	for name, p := range programs {
		q, err := fakequant.New(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = q
	}
	return out, nil
}

// TeacherSettings returns the settings of the run's teacher without reading its weights. The run
// must have a teacher.
func TeacherSettings(cfg *config.Config) (architecture.Settings, error) {
	if cfg.Train.Distillation.Teacher == config.TeacherInitial {
		return cfg.Model, nil
	}
	found, err := config.ReadInitial(cfg.TeacherDir(), cfg.Model.Context)
	if err != nil {
		return architecture.Settings{}, teacherError(cfg, "%w", err)
	}
	s := found.Settings
	if s.Vocab != cfg.Model.Vocab {
		return s, teacherError(cfg, "the teacher in %s has a vocabulary of %d, "+
			"want %d as in the model", found.Dir, s.Vocab, cfg.Model.Vocab)
	}
	if found.MaxPositions > 0 && cfg.Model.Context > found.MaxPositions {
		return s, teacherError(cfg, "the teacher in %s has %d positions, "+
			"want at least model.context = %d", found.Dir, found.MaxPositions, cfg.Model.Context)
	}
	s.Context = cfg.Model.Context
	return s, nil
}

func teacherError(cfg *config.Config, format string, args ...any) error {
	return cfg.ErrorAt("train.distillation.teacher", format, args...)
}

func distillation(cfg *config.Config) (*step.Distillation, error) {
	d := cfg.Train.Distillation
	if d.Teacher == "" {
		return nil, nil
	}
	s, err := TeacherSettings(cfg)
	if err != nil {
		return nil, err
	}
	m, err := model.New(s, model.Options{Documents: cfg.Data.Separate()})
	if err != nil {
		return nil, teacherError(cfg, "%w", err)
	}
	loss := network.Distillation{Beta: d.Beta, Temperature: d.Temperature, Weight: d.Weight,
		Squared: d.Squared}
	return &step.Distillation{Distillation: loss, Teacher: m.(model.Language)}, nil
}
