package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/answer"
	"github.com/cage-qat/cage/sdk/client"
)

// OpaqueTensor is a tensor that an opaque optimizer updates.
type OpaqueTensor struct {
	sdk.Tensor
	State []answer.Tensor
	// RateFactor is what the schedule's rate is multiplied by.
	RateFactor float64
}

// Stepper runs the steps of an opaque optimizer: it holds the process, starts it again when it has crashed or does not
// answer, and has the memory that both share. A crash costs time and changes no result, because a step reads one copy of the
// states and writes another. It is used by one goroutine at a time.
type Stepper struct {
	keeper
	layout client.Layout
	places map[string]*client.Placed
	odd    bool // which states are the current ones
}

// The time limit of a step.
const (
	// DefaultStepTimeout is the default.
	DefaultStepTimeout = time.Minute
	// StepTimeoutVariable is the environment variable that sets another.
	StepTimeoutVariable = "CAGE_PLUGIN_STEP_TIMEOUT"
)

// NewStepper starts the plugin of c once more and hands it the memory of the tensors. The process lives until Close, whatever
// becomes of c and ctx. Errors are [*Error].
func NewStepper(ctx context.Context, c *Client, list []OpaqueTensor) (*Stepper, error) {
	s := &Stepper{places: map[string]*client.Placed{}}
	var placed []client.Placed
	for _, t := range list {
		placed = append(placed, client.Placed{Tensor: t.Tensor, State: t.State, RateFactor: t.RateFactor})
	}
	s.layout = client.Arrange(placed)
	for i, t := range s.layout.Tensors {
		s.places[t.Name] = &s.layout.Tensors[i]
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
	p := s.places[tensor]
	n := elements(p.Shape)
	return s.floats(p.X, n), s.floats(p.Gradient, n)
}

// Direction returns where the direction of a tensor is after a step.
func (s *Stepper) Direction(tensor string) []float32 {
	p := s.places[tensor]
	return s.floats(p.Direction, elements(p.Shape))
}

// State returns the memory of a state tensor that the next step will read. A step that succeeds leaves it as it is, and
// State then returns what the step has written.
func (s *Stepper) State(tensor, state string) []float32 { return s.state(tensor, state, s.odd) }

// Next returns the memory of a state tensor that the next step will write.
func (s *Stepper) Next(tensor, state string) []float32 { return s.state(tensor, state, !s.odd) }

func (s *Stepper) state(tensor, state string, odd bool) []float32 {
	p := s.places[tensor]
	for i, st := range p.State {
		if st.Name == state {
			return s.floats(p.States[i][index(odd)], elements(st.Shape))
		}
	}
	panic(fmt.Sprintf("%s has no state %s", tensor, state))
}

func index(odd bool) int {
	if odd {
		return 1
	}
	return 0
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Step computes one update from what is given and the states. After a crash, and when there is no answer within the time
// limit, the plugin is started again, and the step is tried again, twice at most. Errors are [*Error]; the states are then
// as they were.
func (s *Stepper) Step(step, steps int, rate, loss float64) (err error) {
	ask := client.Step{Step: step, Steps: steps, Rate: rate, Loss: loss, Odd: s.odd}
	err = s.ask(context.Background(), step, func(ctx context.Context, c *Client) error { return c.optimizer.Step(ctx, ask) }, func() error { return s.check(!ask.Odd) })
	if err == nil {
		s.odd = !s.odd
	}
	return err
}

// check verifies that what a step has written is finite.
func (s *Stepper) check(odd bool) error {
	w := newInspection()
	for _, p := range s.layout.Tensors {
		w.check(p.Name, "the direction", s.Direction(p.Name))
		for _, st := range p.State {
			w.check(p.Name, "the state "+st.Name, s.state(p.Name, st.Name, odd))
		}
	}
	return w.wait(s.origin)
}
