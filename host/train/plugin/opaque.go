package plugin

import (
	"context"
	"time"

	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/program"
)

// OpaqueTensor is a tensor that an opaque optimizer updates. [NewStepper] sets its offsets.
type OpaqueTensor = client.Placed

// Stepper runs the steps of an opaque optimizer in the plugin's process. A step reads one copy of
// the states and writes another, so that it can be repeated after a crash. A Stepper is not safe
// for concurrent use.
type Stepper struct {
	keeper
	layout  client.Layout
	tensors map[string]client.Placed
}

// Time limit of a step.
const (
	// DefaultStepTimeout is the default limit.
	DefaultStepTimeout = time.Minute
	// StepTimeoutVariable is an environment variable that overrides the default.
	StepTimeoutVariable = "CAGE_PLUGIN_STEP_TIMEOUT"
)

// NewStepper starts another process of c's plugin and shares memory for the tensors with it. The
// process runs until Close, even if c is closed or ctx canceled; then no step is repeated. Errors
// are [*Error].
func NewStepper(ctx context.Context, c *Client, list []OpaqueTensor) (*Stepper, error) {
	s := &Stepper{layout: client.Arrange(list), tensors: map[string]client.Placed{}}
	for _, t := range s.layout.Tensors {
		s.tensors[t.Name] = t
	}
	s.keeper = keeper{origin: c, call: "step", attach: func(ctx context.Context, c *Client) error {
		return c.optimizer.Attach(ctx, s.memory.path(), s.layout)
	}}
	if err := s.open(ctx, s.layout.Bytes, StepTimeoutVariable, DefaultStepTimeout); err != nil {
		return nil, err
	}
	return s, nil
}

// Buffers returns the buffers of a tensor by the names that [program.Kind.Of] makes: those of x,
// the gradient and the states, to be filled before a step, which does not change them, and those
// that hold the direction and the new states after it.
func (s *Stepper) Buffers(tensor string) (in, out map[string][]float32) {
	t := s.tensors[tensor]
	in = map[string][]float32{program.KindOpaqueX.Of(tensor): s.view(t.X, t.Shape),
		program.KindGivenGradient.Of(tensor): s.view(t.Gradient, t.Shape)}
	out = map[string][]float32{program.KindDirection.Of(tensor): s.view(t.Direction, t.Shape)}
	for i, st := range t.State {
		name := program.KindState.PartOf(tensor, st.Name)
		in[name], out[name] = s.view(t.StateAt[i], st.Shape), s.view(t.NextAt[i], st.Shape)
	}
	return in, out
}

// Step computes one update from the contents of the buffers. After a crash or a timeout, it
// restarts the plugin and repeats the step, at most twice. Errors are [*Error] and leave the states
// unchanged.
func (s *Stepper) Step(step, steps int, rate, loss float64) error {
	var list []result
	for _, t := range s.layout.Tensors {
		list = append(list, result{t.Direction, t.Shape, t.Name, "the direction"})
		for i, st := range t.State {
			list = append(list, result{t.NextAt[i], st.Shape, t.Name, "the state " + st.Name})
		}
	}
	ask := client.Step{Step: step, Steps: steps, Rate: rate, Loss: loss}
	call := func(ctx context.Context, c *Client) error { return c.optimizer.Step(ctx, ask) }
	return s.ask(context.Background(), step, call, list)
}
