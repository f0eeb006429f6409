package conformance

import (
	"context"
	"fmt"
	"sync"

	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
)

// opaque runs steps of an opaque optimizer in a process that has the memory of one tensor; for
// another tensor it starts another process.
type opaque struct {
	client  *plugin.Client
	mu      sync.Mutex
	key     string // of the tensor
	stepper *plugin.Stepper
}

func (o *opaque) step(ctx context.Context, tensor sdk.Tensor, in sdk.OpaqueStep) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	key := fmt.Sprintf("%q %q %v %v %v", tensor.Name, tensor.Role, tensor.Shape, tensor.Parts, tensor.Map())
	if key != o.key {
		o.end()
		list := []plugin.OpaqueTensor{{Tensor: tensor, State: sizesOf(in.State), RateFactor: 1}}
		s, err := plugin.NewStepper(ctx, o.client, list)
		if err != nil {
			return err
		}
		o.key, o.stepper = key, s
	}
	s, name := o.stepper, tensor.Name
	x, gradient := s.Given(name)
	copy(x, in.X)
	copy(gradient, in.Gradient)
	copy(s.Direction(name), in.Direction)
	for st := range in.State {
		copy(s.State(name, st), in.State[st])
		copy(s.Next(name, st), in.Next[st])
	}
	if err := s.Step(in.Step, in.Steps, in.Rate, in.Loss); err != nil {
		return err
	}
	copy(in.Direction, s.Direction(name))
	for st, next := range in.Next {
		copy(next, s.State(name, st))
	}
	return nil
}

func (o *opaque) end() {
	if o.stepper != nil {
		o.stepper.Close()
		o.stepper, o.key = nil, ""
	}
}

func (o *opaque) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end()
}
