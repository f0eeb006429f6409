package assembly

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/memory"
	"github.com/cage-qat/cage/host/train/step"
)

// Built is what a configuration becomes, for training and for evaluation alike: the
// programs of its plugins, its device, and the step compiled for that.
type Built struct {
	Programs *Programs
	Device   *engine.Device
	Compiled *step.Compiled
}

// Build fills b, which is to be closed also after an error. file names the configuration in
// which the memory check can be turned off; empty: the one that the user has given.
func (b *Built) Build(ctx context.Context, req Request, warn func(message string, details ...any), file string) (err error) {
	if err := CheckSizes(req); err != nil {
		return refusal(err, file)
	}
	if b.Programs, err = Collect(ctx, req); err != nil {
		return err
	}
	if err := CheckMemory(req.Config, req.Model, b.Programs); err != nil {
		return refusal(err, file)
	}
	if b.Device, err = Device(req.Config, warn); err != nil {
		return err
	}
	plan, err := Plan(req.Config, req.Model, b.Programs)
	if err != nil {
		return err
	}
	b.Compiled, err = step.Compile(b.Device, plan)
	return err
}

// refusal says how to do what needs too much memory all the same.
func refusal(err error, file string) error {
	if file != "" {
		file = " in " + file
	}
	return fmt.Errorf("%w\nthe estimate may be off by %.0f %%; train.memory_check = \"off\"%s tries it all the same", err, 100*memory.Accuracy, file)
}

func (b *Built) Close() {
	if b.Compiled != nil {
		b.Compiled.Close()
	}
	if b.Device != nil {
		b.Device.Close()
	}
}
