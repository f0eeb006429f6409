package train

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/method/cage"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/plaintoml"
)

// withoutEffect returns warnings of settings that are given and change nothing in this run.
func withoutEffect(cfg *config.Config, programs *assembly.Programs) []string {
	return slices.Concat(idleOfLoop(cfg), idleOfWeights(cfg, programs), idlePlugins(cfg, programs), idleDelays(programs.Tensors))
}

// idleOfWeights finds what is about quantized weights where there are none, and keys of the other form of the correction.
func idleOfWeights(cfg *config.Config, programs *assembly.Programs) (messages []string) {
	m := cfg.Method
	if m.Form == cage.Coupled && m.Variant != cage.Default.Variant {
		messages = append(messages, fmt.Sprintf("method.variant = %q has no effect: method.form is %q", m.Variant, m.Form))
	}
	if len(programs.Weights) > 0 {
		return messages
	}
	for _, k := range []struct {
		setting string
		given   bool
	}{
		{fmt.Sprintf("method.form = %q", m.Form), m.Name == cage.MethodCAGE && m.Form != cage.Off},
		{"method.pareto_every", m.ParetoEvery > 0},
		{"diagnostics.every", cfg.Diagnostics.Every > 0},
	} {
		if k.given {
			messages = append(messages, k.setting+" has no effect: no weight is quantized")
		}
	}
	return messages
}

// idlePlugins finds tables of plugins that have nothing to do.
func idlePlugins(cfg *config.Config, programs *assembly.Programs) (messages []string) {
	if a := cfg.Quantizer.Activations; a != nil && a.Table != "quantizer" && len(programs.Activations) == 0 {
		messages = append(messages, fmt.Sprintf("[%s] has no effect: no activation of the model is quantized with it", a.Table))
	}
	rest := cfg.Optimizer.Rest
	used := slices.ContainsFunc(programs.Used, func(u assembly.Used) bool { return u.Table == rest.Table })
	if cfg.Optimizer.RestGiven() && !used {
		messages = append(messages, fmt.Sprintf("[%s] has no effect: nothing is left to it", rest.Table))
	}
	return messages
}

// idleOfLoop finds what schedule and data have no use for.
func idleOfLoop(cfg *config.Config) (messages []string) {
	for _, key := range cfg.Schedule.Idle() {
		messages = append(messages, fmt.Sprintf("%s has no effect: schedule.kind is %q", key, cfg.Schedule.Kind))
	}
	if cfg.Train.LossMean != config.MeanOfMicroBatches {
		return messages
	}
	const what = "train.loss_mean = %q has no effect: %s"
	switch {
	case !cfg.Data.Separate():
		messages = append(messages, fmt.Sprintf(what, config.MeanOfMicroBatches, "all micro-batches have as many targets, as documents are joined"))
	case cfg.Train.Accumulate == 1:
		messages = append(messages, fmt.Sprintf(what, config.MeanOfMicroBatches, "a step has one micro-batch (train.accumulate)"))
	}
	return messages
}

// idleDelays says of which optimizers refreshes would take effect late, if they had some.
func idleDelays(list []assembly.TrainedTensor) (messages []string) {
	late := map[string]bool{} // whether there is something to delay, by the optimizer's table
	for _, t := range list {
		if t.RefreshDelay > 0 {
			late[t.Table] = late[t.Table] || t.Optimizer.Refresh != nil
		}
	}
	for _, table := range slices.Sorted(maps.Keys(late)) {
		if !late[table] {
			messages = append(messages, plaintoml.JoinKey(table, "refresh_delay")+" has no effect: the optimizer has no refreshes")
		}
	}
	return messages
}
