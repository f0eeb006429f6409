package step_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// delayed returns a plan whose refreshes all take effect late.
func delayed(t testing.TB, o sdk.Optimizer, delay int) step.Plan {
	t.Helper()
	plan := planOf(t, sgdConfig(t), nil, o)
	plan.RefreshDelay = map[string]int{}
	for _, r := range plan.Rules {
		plan.RefreshDelay[r.Name] = delay
	}
	return plan
}

// counted returns the update whose state a refresh of a [clock] reads.
func counted(in map[string]reference.Tensor) float64 {
	return in[spec.StatePrefix+"count"].Scalar()
}

// carried holds the state of a [testrun.Carrier] and the sum of its directions.
type carried struct{ a, m, n, moved float32 }

// carrierAfter computes the expected state of a carrier after a number of updates.
func carrierAfter(updates, delay int) carried {
	s := carried{a: 1}
	var due int            // 0: nothing is pending
	var step, then float32 // the update of the pending refresh, and n at that update
	for t := 1; t <= updates; t++ {
		renew := func() { s.a, s.m = s.a+then, 2*s.m-s.a+s.a*then+step }
		if due > 0 && due == t {
			renew()
			due = 0
		}
		s.n++
		if t == 2 || t >= 4 && (t-4)%3 == 0 {
			step, then = float32(t), s.n
			if t == 2 || delay == 0 { // the first refresh is never late
				renew()
			} else {
				due = t + delay
			}
		}
		s.moved += s.a
		s.m++
	}
	return s
}

// TestRefreshDelay checks that a refresh reads the state of the update at which it is due, and
// takes effect late, together with what later updates have changed, with and without a checkpoint
// before every update. A step as one executable, as on a GPU, must not miss it and go on with the
// old preconditioner.
func TestRefreshDelay(t *testing.T) {
	for _, dispatch := range []step.Dispatch{step.Chain, step.Single} {
		for delay := range 3 {
			t.Run(fmt.Sprintf("%s, delay %d", dispatch, delay), func(t *testing.T) {
				plan := delayed(t, testrun.Carrier{}, delay)
				plan.Dispatch = dispatch
				c := testrun.Compile(t, plan)
				if err := c.Prepare(false); err != nil {
					t.Fatal(err)
				}
				whole, parts := newState(t, c), newState(t, c)
				b := batches(sgdConfig(t), 1, 1)
				start := testrun.Download(t, c, whole)
				for i := 1; i <= 14; i++ {
					set := step.Settings{Step: i, Rate: 0.5}
					run(t, c, whole, b, set)
					parts = throughCheckpoint(t, c, parts)
					run(t, c, parts, b, set)
					got := testrun.Download(t, c, whole)
					sameBits(t, fmt.Sprintf("update %d: without and with checkpoints", i), got,
						testrun.Download(t, c, parts))
					want := carrierAfter(i, delay)
					for _, p := range c.Plan().Model.Params() {
						state := func(name string) float32 { return got["state/"+p.Name+"/"+name][0] }
						now := carried{state("a"), state("m"), state("n"), want.moved}
						if now != want {
							t.Fatalf("update %d, %s: %+v, want %+v", i, p.Name, now, want)
						}
						// Sums of up to 14 directions, of which the largest is 59.
						near(t, "direction", float64(start["param/"+p.Name][0]-got["param/"+p.Name][0]),
							float64(want.moved)*0.5, 1e-5)
					}
				}
			})
		}
	}
}

// TestSOAPDelay checks that a late refresh has the result of the refresh program for the factors
// and bases when it was due, and the moments when it takes effect.
func TestSOAPDelay(t *testing.T) {
	testlevel.Long(t, "compiles SOAP")
	cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=32",
		`optimizer={plugin="soap", refresh_delay=2}`)
	c := testrun.Compile(t, testrun.Plan(t, cfg))
	s := newState(t, c)
	var then map[string][]float32
	for i := 1; i <= 13; i++ { // refreshes are due at 2 and 12
		if i == 12 {
			then = testrun.Download(t, c, s)
		}
		run(t, c, s, batches(cfg, uint64(i), 1), step.Settings{Step: i, Rate: 1e-3})
	}
	now := testrun.Download(t, c, s)
	if err := c.Install(s, 14); err != nil {
		t.Fatal(err)
	}
	got := testrun.Download(t, c, s)
	for _, r := range c.Plan().Rules {
		if r.Optimizer.Refresh == nil {
			continue
		}
		in := map[string]reference.Tensor{spec.InputStep: reference.Float(12)}
		for _, st := range r.Optimizer.State {
			from := then
			if st.Name == "m" || st.Name == "v" {
				from = now
			}
			in[spec.StatePrefix+st.Name] = reference.Floats(wide(from["state/"+r.Name+"/"+st.Name]),
				st.Shape...)
		}
		want, err := refresh.Execute(r.Optimizer.Refresh, in)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range want {
			largest, most := 0.0, 0.0
			for i, x := range wide(got["state/"+r.Name+"/"+strings.TrimPrefix(name, spec.StatePrefix)]) {
				largest, most = max(largest, math.Abs(v.Floats[i])), max(most, math.Abs(x-v.Floats[i]))
			}
			// Products of at most 96 terms in binary32.
			if most > 96*0x1p-24*largest {
				t.Errorf("%s, %s: differs by %.2g, its largest element is %.2g", r.Name, name, most, largest)
			}
		}
	}
}

// TestRefreshDoesNotWait checks that steps go on while a refresh is computed, and that the update
// before which it takes effect waits.
func TestRefreshDoesNotWait(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := testrun.Compile(t, delayed(t, clock{}, 2))
	release, calls := make(chan struct{}), atomic.Int64{}
	c.SetExecutor(func(p *program.Program, in map[string]reference.Tensor) (
		map[string]reference.Tensor, error) {
		if counted(in) == 4 {
			calls.Add(1)
			<-release
		}
		return reference.Run(p, in)
	})
	s, err := c.NewState(t.Context(), 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := batches(sgdConfig(t), 1, 1)
	note := func() float32 {
		n := "state/" + c.Plan().Model.Params()[0].Name + "/note"
		return testrun.Download(t, c, s)[n][0]
	}
	for i := 1; i <= 5; i++ { // would never end if updates 4 or 5 waited
		run(t, c, s, b, step.Settings{Step: i, Rate: 0.1})
	}
	ended := make(chan error)
	go func() {
		_, err := c.Step(s, b, step.Settings{Step: 6, Rate: 0.1})
		ended <- err
	}()
	select {
	case <-ended:
		t.Fatal("update 6 has not waited for the refresh")
	case release <- struct{}{}: // the refresh is running
	}
	close(release)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := note(); got != 40 {
		t.Errorf("the note is %v, want 40, of the update at which the refresh was due", got)
	}
	if got, want := int(calls.Load()), len(c.Plan().Rules); got != want {
		t.Errorf("%d refreshes, want %d", got, want)
	}
}

// TestCloseEndsRefreshes checks that closing a state waits for running refreshes, starts no others,
// and leaves no goroutine behind.
func TestCloseEndsRefreshes(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := testrun.Compile(t, delayed(t, clock{}, 2))
	begun, release := make(chan struct{}, 100), make(chan struct{})
	c.SetExecutor(func(p *program.Program, in map[string]reference.Tensor) (
		map[string]reference.Tensor, error) {
		if counted(in) == 4 {
			begun <- struct{}{}
			<-release
		}
		return reference.Run(p, in)
	})
	s, err := c.NewState(t.Context(), 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 4; i++ {
		run(t, c, s, batches(sgdConfig(t), 1, 1), step.Settings{Step: i, Rate: 0.1})
	}
	<-begun
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
		t.Error("Close did not wait")
	case release <- struct{}{}:
	}
	close(release)
	<-closed
}

// TestSkippedStepDelay checks that a step whose loss is not finite neither starts a refresh nor
// puts its result into effect; the next update, which has the same number, does.
func TestSkippedStepDelay(t *testing.T) {
	c := testrun.Compile(t, delayed(t, clock{}, 1))
	whole, skipping := newState(t, c), newState(t, c)
	good, bad := batches(sgdConfig(t), 1, 1), batches(sgdConfig(t), 2, 1)
	bad[0][3] = vocab
	for i := 1; i <= 9; i++ {
		set := step.Settings{Step: i, Rate: 0.1}
		run(t, c, whole, good, set)
		before := testrun.Download(t, c, skipping)
		if res := run(t, c, skipping, bad, set); !res.Skipped {
			t.Fatal("the step was not skipped")
		}
		sameBits(t, fmt.Sprintf("before and after the skipped update %d", i), before,
			testrun.Download(t, c, skipping))
		run(t, c, skipping, good, set)
		sameBits(t, fmt.Sprintf("with and without skipped steps, update %d", i),
			testrun.Download(t, c, whole), testrun.Download(t, c, skipping))
	}
}

// TestFailedRefreshDelay checks that a failed refresh is reported when it would have taken effect,
// also after resuming, and that the fourth failure in a row ends the run.
func TestFailedRefreshDelay(t *testing.T) {
	testlevel.Long(t, "compiles an optimizer with refreshes")
	c := testrun.Compile(t, delayed(t, clock{}, 1))
	c.SetExecutor(func(p *program.Program, in map[string]reference.Tensor) (
		map[string]reference.Tensor, error) {
		if at := counted(in); at != 2 && at != 7 {
			return nil, errors.New("no convergence")
		}
		return reference.Run(p, in)
	})
	s := newState(t, c)
	note := "state/" + c.Plan().Model.Params()[0].Name + "/note"
	for i := 1; ; i++ { // refreshes are due at 2, 4, 7, 10, 13, 16, 19 and late from the second on
		res, err := c.Step(s, batches(sgdConfig(t), 1, 1), step.Settings{Step: i, Rate: 0.1})
		if i == 20 {
			if err == nil || !strings.Contains(err.Error(), "failed 4 times in a row: no convergence") {
				t.Errorf("the fourth failure in a row: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatalf("update %d: %v", i, err)
		}
		want := 0
		if i == 5 || i == 11 || i == 14 || i == 17 {
			want = len(c.Plan().Rules)
		}
		if got := len(res.FailedRefreshes); got != want {
			t.Errorf("update %d: %d refreshes failed, want %d", i, got, want)
		}
		if i == 10 {
			if pending := s.Pending.Records(); len(pending) == 0 || pending[0].Failed != "no convergence" ||
				pending[0].Step != 10 || pending[0].Due != 11 {
				t.Errorf("after update %d there are pending %+v", i, pending)
			}
		}
		s = throughCheckpoint(t, c, s)
		if want := map[bool]float32{false: 21, true: 70}[i >= 8]; i >= 2 &&
			testrun.Download(t, c, s)[note][0] != want {
			t.Errorf("after update %d the note is %v, want %v", i, testrun.Download(t, c, s)[note][0], want)
		}
	}
}

// TestRestoreRefreshesOfAnother checks the errors for refreshes that do not match the plan.
func TestRestoreRefreshesOfAnother(t *testing.T) {
	c := testrun.Compile(t, delayed(t, clock{}, 1))
	s := newState(t, c)
	name := c.Plan().Rules[0].Name
	none := func(name string) (step.Tensor, error) {
		return step.Tensor{}, fmt.Errorf("there is no tensor %s", name)
	}
	for want, p := range map[string]refresh.Record{
		"has an unexpected refresh":                      {Tensor: "another", Step: 4, Due: 5},
		"from update 5 to 5":                             {Tensor: name, Step: 5, Due: 5},
		"no tensor refresh/" + name + "/" + "state.note": {Tensor: name, Step: 4, Due: 5},
	} {
		if err := c.RestoreRefreshes(s, []refresh.Record{p}, none); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to say %q", p, err, want)
		}
	}
	other := func(name string) (step.Tensor, error) {
		return step.Tensor{Name: name, Dims: []int{2}, Data: []float32{1, 2}}, nil
	}
	err := c.RestoreRefreshes(s, []refresh.Record{{Tensor: name, Step: 4, Due: 5}}, other)
	if err == nil || !strings.Contains(err.Error(), "has shape [2], the run needs []") {
		t.Errorf("a tensor of another shape: %v", err)
	}
	plan := delayed(t, clock{}, 3)
	if _, err := step.Compile(testrun.Device(t), plan); err == nil ||
		!strings.Contains(err.Error(), "refreshes are due every 3") {
		t.Errorf("a delay as long as the interval: %v", err)
	}
}
