package plugin

import (
	"context"
	"time"

	"github.com/cage-qat/cage/sdk/client"
)

// OpaqueTensor is a tensor that an opaque optimizer updates, without its places.
type OpaqueTensor = client.Placed

// Stepper runs the steps of an opaque optimizer: it holds the process, starts it again when it has
// crashed or does not answer, and has the memory that both share. A crash costs time and changes no
// result, because a step reads one copy of the states and writes another. It is used by one
// goroutine at a time.
type Stepper struct {
	keeper
	layout client.Layout
	odd    bool // which states are the current ones
}

// The time limit of a step.
const (
	// DefaultStepTimeout is the default.
	DefaultStepTimeout = time.Minute
	// StepTimeoutVariable is the environment variable that sets another.
	StepTimeoutVariable = "CAGE_PLUGIN_STEP_TIMEOUT"
)

// NewStepper starts the plugin of c once more and hands it the memory of the tensors. The process
// lives until Close, whatever becomes of c and ctx. Errors are [*Error].
func NewStepper(ctx context.Context, c *Client, list []OpaqueTensor) (*Stepper, error) {
	s := &Stepper{layout: client.Arrange(list)}
	spans := map[place]span{}
	for _, t := range s.layout.Tensors {
		for kind, at := range map[string]int64{kindX: t.X, kindGradient: t.Gradient, kindDirection: t.Direction} {
			spans[place{t.Name, kind, ""}] = spanOf(at, t.Shape)
		}
		for i, st := range t.State {
			for odd, at := range t.States[i] {
				spans[place{t.Name, kindState[odd], st.Name}] = spanOf(at, st.Shape)
			}
		}
	}
	s.keeper = keeper{origin: c, call: "step", spans: spans, attach: func(ctx context.Context, c *Client) error {
		return c.optimizer.Attach(ctx, s.memory.path(), s.layout)
	}}
	if err := s.open(ctx, s.layout.Bytes, StepTimeoutVariable, DefaultStepTimeout); err != nil {
		return nil, err
	}
	return s, nil
}

// What the memory of a tensor holds.
const (
	kindX         = "x"
	kindGradient  = "gradient"
	kindDirection = "direction"
)

// kindState is that of the states which even steps read and odd ones write, and that of the others.
var kindState = [2]string{"even state", "odd state"}

// Given returns where x and the gradient of a tensor are to be put before a step.
func (s *Stepper) Given(tensor string) (x, gradient []float32) {
	return s.floats(place{tensor, kindX, ""}), s.floats(place{tensor, kindGradient, ""})
}

// Direction returns where the direction of a tensor is after a step.
func (s *Stepper) Direction(tensor string) []float32 {
	return s.floats(place{tensor, kindDirection, ""})
}

// State returns the memory of a state tensor that the next step will read. A step that succeeds
// leaves it as it is, and State then returns what the step has written.
func (s *Stepper) State(tensor, state string) []float32 {
	return s.floats(place{tensor, kindState[index(s.odd)], state})
}

// Next returns the memory of a state tensor that the next step will write.
func (s *Stepper) Next(tensor, state string) []float32 {
	return s.floats(place{tensor, kindState[index(!s.odd)], state})
}

func index(odd bool) int {
	if odd {
		return 1
	}
	return 0
}

// Step computes one update from what is given and the states. After a crash, and when there is no
// answer within the time limit, the plugin is started again, and the step is tried again, twice at
// most. Errors are [*Error]; the states are then as they were.
func (s *Stepper) Step(step, steps int, rate, loss float64) (err error) {
	ask := client.Step{Step: step, Steps: steps, Rate: rate, Loss: loss, Odd: s.odd}
	call := func(ctx context.Context, c *Client) error { return c.optimizer.Step(ctx, ask) }
	err = s.ask(context.Background(), step, call, s.take)
	if err == nil {
		s.odd = !s.odd
	}
	return err
}

func (s *Stepper) take() error {
	x := s.exchange()
	for _, p := range s.layout.Tensors {
		x.take(place{p.Name, kindDirection, ""}, "the direction")
		for _, st := range p.State {
			x.take(place{p.Name, kindState[index(!s.odd)], st.Name}, "the state "+st.Name)
		}
	}
	return x.wait()
}
