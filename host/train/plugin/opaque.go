package plugin

import (
	"context"
	"slices"
	"time"

	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/spec"
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
	current int // which copies of the states, 0 or 1, the next step reads
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

// Inputs returns the buffers for a tensor's x and gradient, to be filled before a step.
func (s *Stepper) Inputs(tensor string) (x, gradient []float32) {
	t := s.tensors[tensor]
	return s.view(t.X, t.Shape), s.view(t.Gradient, t.Shape)
}

// Direction returns the buffer that holds a tensor's direction after a step.
func (s *Stepper) Direction(tensor string) []float32 {
	t := s.tensors[tensor]
	return s.view(t.Direction, t.Shape)
}

// State returns the buffer of a state tensor that the next step reads and does not change. After a
// successful step, it returns the buffer that the step has written.
func (s *Stepper) State(tensor, state string) []float32 { return s.state(tensor, state, s.current) }

// Next returns the buffer of a state tensor that the next step writes.
func (s *Stepper) Next(tensor, state string) []float32 {
	return s.state(tensor, state, 1-s.current)
}

func (s *Stepper) state(tensor, state string, which int) []float32 {
	t := s.tensors[tensor]
	i := slices.IndexFunc(t.State, func(st spec.Tensor) bool { return st.Name == state })
	return s.view(t.States[i][which], t.State[i].Shape)
}

// Step computes one update from the buffers of Inputs and State. After a crash or a timeout, it
// restarts the plugin and repeats the step, at most twice. Errors are [*Error] and leave the states
// unchanged.
func (s *Stepper) Step(step, steps int, rate, loss float64) error {
	var list []result
	for _, t := range s.layout.Tensors {
		list = append(list, result{t.Direction, t.Shape, t.Name, "the direction"})
		for i, st := range t.State {
			at := t.States[i][1-s.current]
			list = append(list, result{at, st.Shape, t.Name, "the state " + st.Name})
		}
	}
	ask := client.Step{Step: step, Steps: steps, Rate: rate, Loss: loss, Odd: s.current == 1}
	call := func(ctx context.Context, c *Client) error { return c.optimizer.Step(ctx, ask) }
	err := s.ask(context.Background(), step, call, list)
	if err == nil {
		s.current = 1 - s.current
	}
	return err
}
