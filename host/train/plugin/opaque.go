package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"

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
	origin  *Client // what to start; it may be closed
	running *Client // nil: not running
	timeout time.Duration
	memory  *sharedMemory
	layout  client.Layout
	places  map[string]*client.Placed
	odd     bool // which states are the current ones
}

// The time limit of a step.
const (
	// DefaultStepTimeout is the default.
	DefaultStepTimeout = time.Minute
	// StepTimeoutVariable is the environment variable that sets another.
	StepTimeoutVariable = "CAGE_PLUGIN_STEP_TIMEOUT"
)

// pauses are those before a step is tried for the first, second and third time.
var pauses = []time.Duration{0, 100 * time.Millisecond, 2 * time.Second}

// NewStepper starts the plugin of c once more and hands it the memory of the tensors. The process lives until Close, whatever
// becomes of c and ctx. Errors are [*Error].
func NewStepper(ctx context.Context, c *Client, list []OpaqueTensor) (*Stepper, error) {
	s := &Stepper{origin: c, places: map[string]*client.Placed{}, timeout: DefaultStepTimeout}
	if text := os.Getenv(StepTimeoutVariable); text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil || limit <= 0 {
			return nil, c.exe.complete(failure(ErrStart, "%s is %q: want a time, such as 30s or 2m", StepTimeoutVariable, text))
		}
		s.timeout = limit
	}
	var placed []client.Placed
	for _, t := range list {
		placed = append(placed, client.Placed{Tensor: t.Tensor, State: t.State, RateFactor: t.RateFactor})
	}
	s.layout = client.Arrange(placed)
	for i, t := range s.layout.Tensors {
		s.places[t.Name] = &s.layout.Tensors[i]
	}
	var err error
	if s.memory, err = newSharedMemory(s.layout.Bytes); err != nil {
		return nil, c.exe.complete(failure(ErrStart, "%w", err))
	}
	if err := s.start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// start starts the process and attaches the memory.
func (s *Stepper) start(ctx context.Context) error {
	c, err := s.origin.Restart(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	s.running = c
	return c.callWithin(ctx, c.opts.CallTimeout, moreTime, "", func(ctx context.Context) error {
		return c.optimizer.Attach(ctx, s.memory.path(), s.layout)
	})
}

// Close ends the process and frees the memory: nothing that the stepper has returned may be used any more.
func (s *Stepper) Close() {
	s.stop()
	s.memory.close()
}

func (s *Stepper) stop() {
	if s.running != nil {
		s.running.Close()
		s.running = nil
	}
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

func (s *Stepper) floats(at int64, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&s.memory.data[at])), n)
}

// Step computes one update from what is given and the states. After a crash, and when there is no answer within the time
// limit, the plugin is started again, and the step is tried again, twice at most. Errors are [*Error]; the states are then
// as they were.
func (s *Stepper) Step(step, steps int, rate, loss float64) (err error) {
	ask := client.Step{Step: step, Steps: steps, Rate: rate, Loss: loss, Odd: s.odd}
	for i, pause := range pauses {
		time.Sleep(pause)
		if err = s.try(ask); err == nil {
			s.odd = !s.odd
			return nil
		}
		if !errors.Is(err, ErrShutdown) && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrStart) {
			return err
		}
		s.stop()
		if i+1 < len(pauses) {
			s.origin.opts.Logger.Warn("a step of an opaque optimizer is tried again", "step", step, "after", pauses[i+1], "error", err)
		}
	}
	e := *err.(*Error)
	e.Err = fmt.Errorf("%w, %d times in a row in this step", e.Err, len(pauses))
	return &e
}

// try starts the plugin, if it does not run, and asks for a step once.
func (s *Stepper) try(ask client.Step) error {
	ctx := context.Background()
	if s.running == nil {
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	c := s.running
	err := c.callWithin(ctx, s.timeout, " ("+StepTimeoutVariable+"=5m allows five minutes)", "", func(ctx context.Context) error {
		return c.optimizer.Step(ctx, ask)
	})
	if err != nil {
		return err
	}
	return s.check(!ask.Odd)
}

// check verifies that what a step has written is finite.
func (s *Stepper) check(odd bool) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	var found atomic.Pointer[Error]
	check := func(tensor, what string, list []float32) {
		const part = 1 << 18 // elements; their time is far above that of a goroutine
		for first := 0; first < len(list); first += part {
			list := list[first:min(len(list), first+part)]
			group.Go(func() error {
				if finite(list) {
					return nil
				}
				for i, v := range list {
					if v-v != 0 {
						e := failure(ErrFailed, "it wrote %v to element %d of %s; all that it was given is finite", v, first+i, what)
						e.Site = tensor
						found.Store(e)
						break
					}
				}
				return nil
			})
		}
	}
	for _, p := range s.layout.Tensors {
		check(p.Name, "the direction", s.Direction(p.Name))
		for _, st := range p.State {
			check(p.Name, "the state "+st.Name, s.state(p.Name, st.Name, odd))
		}
	}
	_ = group.Wait()
	if e := found.Load(); e != nil {
		return s.origin.exe.complete(e)
	}
	return nil
}

// finite reports whether all numbers are finite: an exponent of ones alone overflows into the bit of the sign, for two numbers at once.
func finite(list []float32) bool {
	const exponents, ones, signs = 0x7f800000_7f800000, 0x00800000_00800000, 0x80000000_80000000
	var bad uint64
	if len(list) >= 2 {
		pairs := unsafe.Slice((*uint64)(unsafe.Pointer(&list[0])), len(list)/2)
		for len(pairs) >= 4 {
			p := pairs[:4:4]
			bad |= (p[0]&exponents + ones) | (p[1]&exponents + ones) | (p[2]&exponents + ones) | (p[3]&exponents + ones)
			pairs = pairs[4:]
		}
		for _, p := range pairs {
			bad |= p&exponents + ones
		}
	}
	if n := len(list); n%2 == 1 && list[n-1]-list[n-1] != 0 {
		return false
	}
	return bad&signs == 0
}
