package step_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/recovered"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// clock is an optimizer that shows when its programs run: the state count is the number of updates
// observed, a refresh sets note to 10 times count (plus 1 the first time), and the direction is
// note.
type clock struct{ descent }

func (clock) Init(b *program.Builder, _ program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"count": b.Const(0), "note": b.Const(0)}, nil
}

func (clock) Observe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"count": in.State["count"].Shift(1)}, nil
}

func (clock) Refresh(
	_ *program.Builder, in sdk.RefreshInput, first bool, _ sdk.Tensor,
) (sdk.State, error) {
	note := in.State["count"].Scale(10)
	if first {
		note = note.Shift(1)
	}
	return sdk.State{"note": note}, nil
}

func (clock) RefreshAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 2, Next: 4, Every: 3} }

func (clock) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	return b.Zeros(t.Shape...).Add(in.State["note"]), in.State, nil
}

// TestRefresh checks that an update runs the observation, a refresh if it is due, and the update,
// each with the results of the one before, also across a checkpoint.
func TestRefresh(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.0")
	c := testrun.Compile(t, planOf(t, cfg, grid{}, clock{}))
	s := newState(t, c)
	before := testrun.Download(t, c, s)
	const rate = 0.5
	notes := []float32{0, 21, 21, 40, 40, 40, 70, 70} // of updates 1, 2, …
	moved := float32(0)
	for i, note := range notes {
		run(t, c, s, batches(cfg, 1, 1), step.Settings{Step: i + 1, Rate: rate, Lambda: 0})
		moved += rate * note
		if i == 4 {
			s = throughCheckpoint(t, c, s)
		}
	}
	after := testrun.Download(t, c, s)
	for _, p := range c.Plan().Model.Params() {
		if got := after["state/"+p.Name+"/count"][0]; got != float32(len(notes)) {
			t.Errorf("%s was observed %v times in %d updates", p.Name, got, len(notes))
		}
		for i, x := range before["param/"+p.Name] {
			got := after["param/"+p.Name][i]
			if want := x - moved; math.Abs(float64(got-want)) > 1e-3 {
				t.Fatalf("%s, element %d: %v became %v, want %v", p.Name, i, x, got, want)
			}
		}
	}
}

// follower has no observation. Its refresh keeps the gradient that it is given, or, where a delay
// divides it, adds it to what updates write; each update keeps its own.
type follower struct {
	clock
	adds bool
}

func (follower) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	zeros := b.Zeros(t.Shape...)
	return sdk.State{"refreshed": zeros, "updated": zeros}, nil
}

func (follower) Observe(*program.Builder, sdk.UpdateInput, sdk.Tensor) (sdk.State, error) {
	return nil, nil
}

func (f follower) Refresh(
	_ *program.Builder, in sdk.RefreshInput, _ bool, _ sdk.Tensor,
) (sdk.State, error) {
	if f.adds {
		return sdk.State{"updated": in.State["updated"].Scale(1e-3).Add(in.Gradient)}, nil
	}
	return sdk.State{"refreshed": in.Gradient}, nil
}

func (f follower) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	next := sdk.State{"refreshed": in.State["refreshed"], "updated": in.Gradient}
	if f.adds { // what a refresh has written stays visible
		next["refreshed"] = in.State["updated"]
	}
	return in.Gradient, next, nil
}

// TestRefreshGradient checks that a refresh gets the gradient of its update, clipped as for the
// update, also if it takes effect late, and if it changes what updates write.
func TestRefreshGradient(t *testing.T) {
	for name, o := range map[string]follower{"keeps": {}, "adds": {adds: true}} {
		for delay := range 2 {
			t.Run(fmt.Sprintf("%s, delay %d", name, delay), func(t *testing.T) {
				plan := delayed(t, o, delay)
				plan.Clip = 0.1
				for i := range plan.Rules {
					plan.Rules[i].Clip = true
				}
				c := testrun.Compile(t, plan)
				s := newState(t, c)
				gradients := map[int][]float32{}
				const state = "state/layers.0.mlp.down/"
				for i := 1; i <= 5; i++ {
					b := batches(sgdConfig(t), uint64(i), 1)
					run(t, c, s, b, step.Settings{Step: i, Rate: 0.5})
					got := testrun.Download(t, c, s)
					gradients[i] = got[state+"updated"]
					if i < 4+delay {
						continue
					}
					for k, v := range got[state+"refreshed"] {
						want := float64(gradients[4][k])
						switch {
						case !o.adds:
						case i > 4+delay:
							want = float64(gradients[i-1][k]) // the refresh is over
						default: // of update 4, beside what the update before i has written
							want += 1e-3 * float64(gradients[i-1][k])
						}
						if math.Abs(float64(v)-want) > 1e-6*(1e-3+math.Abs(want)) {
							t.Fatalf("update %d, element %d: %v, want %v", i, k, v, want)
						}
					}
				}
			})
		}
	}
}

// throughCheckpoint replaces a state by a copy that was in host memory.
func throughCheckpoint(t *testing.T, c *step.Compiled, s *step.State) *step.State {
	t.Helper()
	load := loaded(testrun.Tensors(t, c, s))
	pending, failures := s.Pending.Records(), s.Pending.Failures
	s.Close()
	copied, err := c.Upload(load)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(copied.Close)
	if err := c.RestoreRefreshes(copied, pending, load); err != nil {
		t.Fatal(err)
	}
	copied.Pending.Failures = failures
	return copied
}

// TestFailedRefresh checks that a failed factorization leaves the preconditioner unchanged, and
// that the fourth failure in a row is an error.
func TestFailedRefresh(t *testing.T) {
	cfg := sgdConfig(t, "train.weight_decay=0.0")
	c := testrun.Compile(t, planOf(t, cfg, nil, clock{}))
	failing := true
	c.SetExecutor(func(p *program.Program, in map[string]reference.Tensor) (
		map[string]reference.Tensor, error) {
		if failing {
			return nil, errors.New("no convergence")
		}
		return reference.Run(p, in)
	})
	s := newState(t, c)
	note := "state/" + c.Plan().Model.Params()[0].Name + "/note"
	for i := range 14 { // refreshes are due at 2, 4, 7, 10, 13
		failing = i+1 != 7
		res, err := c.Step(s, batches(cfg, 1, 1), step.Settings{Step: i + 1, Rate: 0.1})
		if err != nil {
			t.Fatalf("update %d: %v", i+1, err)
		}
		if !s.Consistent() {
			t.Errorf("update %d: the state is not consistent", i+1)
		}
		due := i+1 == 2 || i+1 == 4 || i+1 == 10 || i+1 == 13
		if got := len(res.FailedRefreshes); due && got != len(c.Plan().Rules) || !due && got != 0 {
			t.Errorf("update %d: %d refreshes failed", i+1, got)
		}
		want := float32(0)
		if i+1 >= 7 {
			want = 70
		}
		if got := testrun.Download(t, c, s)[note][0]; got != want {
			t.Errorf("after update %d the note is %v, want %v", i+1, got, want)
		}
	}
	for t2 := 15; ; t2++ {
		_, err := c.Step(s, batches(cfg, 1, 1), step.Settings{Step: t2, Rate: 0.1})
		if err != nil {
			if t2 != 19 || !strings.Contains(err.Error(), "failed 4 times in a row: no convergence") {
				t.Errorf("update %d: %v", t2, err)
			}
			if s.Consistent() {
				t.Error("a state that a step has left half replaced passes for consistent")
			}
			return
		}
		if t2 > 30 {
			t.Fatal("failures are tolerated for ever")
		}
	}
}

// TestRefreshPanics checks that a panic of the executor of refresh programs, which runs on its own
// goroutines, ends the step with an error, unlike a matrix without eigenvalues.
func TestRefreshPanics(t *testing.T) {
	// if resumed, the state goes through a checkpoint after every update
	for delay, resumed := range map[int]bool{0: false, 1: false, 2: true} {
		c := testrun.Compile(t, delayed(t, testrun.Carrier{}, delay))
		var fails atomic.Bool // read concurrently with the steps
		c.SetExecutor(func(p *program.Program, in map[string]reference.Tensor) (
			map[string]reference.Tensor, error) {
			if fails.Load() {
				panic("a state that cannot be")
			}
			return reference.Run(p, in)
		})
		s := newState(t, c)
		var err error
		for i := 1; i <= 8 && err == nil; i++ {
			fails.Store(i > 2) // the first refresh is never late
			_, err = c.Step(s, batches(sgdConfig(t), 1, 1), step.Settings{Step: i, Rate: 0.1})
			if err == nil && resumed {
				s = throughCheckpoint(t, c, s)
			}
		}
		var caught *recovered.PanicError
		if !resumed && (!errors.As(err, &caught) || caught.Executor != "refresh" ||
			caught.Program == "") || err == nil || !strings.Contains(err.Error(), "a state that cannot be") {
			t.Errorf("delay %d, resumed %t: got %v", delay, resumed, err)
		}
	}
}
