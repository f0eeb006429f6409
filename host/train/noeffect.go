package train

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/config"
)

// withoutEffect returns warnings of settings that are given and change nothing in this run.
func withoutEffect(cfg *config.Config) (messages []string) {
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
			messages = append(messages, config.JoinKey(table, "refresh_delay")+" has no effect: the optimizer has no refreshes")
		}
	}
	return messages
}
