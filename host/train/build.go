package train

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/memory"
	"github.com/cage-qat/cage/host/train/step"
)

// built is what a configuration becomes, for training and for evaluation alike: the
// programs of its plugins, its device, and the step compiled for that.
type built struct {
	programs *assembly.Programs
	device   *engine.Device
	compiled *step.Compiled
}

// build fills b, which is to be closed also after an error. file names the configuration in
// which the memory check can be turned off; empty: the one that the user has given.
func (b *built) build(ctx context.Context, req assembly.Request, warn func(message string, details ...any), file string) (err error) {
	if err := assembly.CheckSizes(req); err != nil {
		return refusal(err, file)
	}
	if b.programs, err = assembly.Collect(ctx, req); err != nil {
		return err
	}
	if err := assembly.CheckMemory(req.Config, req.Model, b.programs); err != nil {
		return refusal(err, file)
	}
	if b.device, err = assembly.Device(req.Config, warn); err != nil {
		return err
	}
	plan, err := assembly.Plan(req.Config, req.Model, b.programs)
	if err != nil {
		return err
	}
	b.compiled, err = step.Compile(b.device, plan)
	return err
}

// refusal says how to do what needs too much memory all the same.
func refusal(err error, file string) error {
	if file != "" {
		file = " in " + file
	}
	return fmt.Errorf("%w\nthe estimate may be off by %.0f %%; train.memory_check = \"off\"%s tries it all the same", err, 100*memory.Accuracy, file)
}

func (b *built) close() {
	if b.compiled != nil {
		b.compiled.Close()
	}
	if b.device != nil {
		b.device.Close()
	}
}
