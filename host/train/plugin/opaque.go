package plugin

import (
	"context"
	"slices"
	"time"

	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/spec"
)

// OpaqueTensor is a tensor that an opaque optimizer updates, without its places.
type OpaqueTensor = client.Placed

// Stepper runs the steps of an opaque optimizer: it holds the process, starts it again when it has
// crashed or does not answer, and has the memory that both share. A crash costs time and changes no
// result, because a step reads one copy of the states and writes another. It is used by one
// goroutine at a time.
type Stepper struct {
	keeper
	layout  client.Layout
	tensors map[string]client.Placed
	odd     bool // which states are the current ones
}

// The time limit of a step.
const (
	// DefaultStepTimeout is the default.
	DefaultStepTimeout = time.Minute
	// StepTimeoutVariable is the environment variable that sets another.
	StepTimeoutVariable = "CAGE_PLUGIN_STEP_TIMEOUT"
)

// NewStepper starts the plugin of c once more and attaches the memory of the tensors. The process
// lives until Close, whatever becomes of c and ctx. Errors are [*Error].
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

// Given returns where x and the gradient of a tensor are to be put before a step.
func (s *Stepper) Given(tensor string) (x, gradient []float32) {
	t := s.tensors[tensor]
	return s.view(t.X, t.Shape), s.view(t.Gradient, t.Shape)
}

// Direction returns where the direction of a tensor is after a step.
func (s *Stepper) Direction(tensor string) []float32 {
	t := s.tensors[tensor]
	return s.view(t.Direction, t.Shape)
}

// State returns the memory of a state tensor that the next step will read. A step that succeeds
// leaves it as it is, and State then returns what the step has written.
func (s *Stepper) State(tensor, state string) []float32 { return s.state(tensor, state, s.odd) }

// Next returns the memory of a state tensor that the next step will write.
func (s *Stepper) Next(tensor, state string) []float32 { return s.state(tensor, state, !s.odd) }

func (s *Stepper) state(tensor, state string, odd bool) []float32 {
	t := s.tensors[tensor]
	i := slices.IndexFunc(t.State, func(st spec.Tensor) bool { return st.Name == state })
	return s.view(place(t.States[i], odd), t.State[i].Shape)
}

// place is the one of the two places of a state that even or odd steps read.
func place(places [2]int64, odd bool) int64 {
	if odd {
		return places[1]
	}
	return places[0]
}

// Step computes one update from what is given and the states. After a crash, and when there is no
// answer within the time limit, the plugin is started again, and the step is tried again, twice at
// most. Errors are [*Error]; the states are then as they were.
func (s *Stepper) Step(step, steps int, rate, loss float64) error {
	var list []result
	for _, t := range s.layout.Tensors {
		list = append(list, result{t.Direction, t.Shape, t.Name, "the direction"})
		for i, st := range t.State {
			list = append(list, result{place(t.States[i], !s.odd), st.Shape, t.Name, "the state " + st.Name})
		}
	}
	ask := client.Step{Step: step, Steps: steps, Rate: rate, Loss: loss, Odd: s.odd}
	call := func(ctx context.Context, c *Client) error { return c.optimizer.Step(ctx, ask) }
	err := s.ask(context.Background(), step, call, list)
	if err == nil {
		s.odd = !s.odd
	}
	return err
}
