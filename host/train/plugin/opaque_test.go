package plugin

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

func init() {
	behaviours["opaque"] = func() { sdk.ServeOpaqueOptimizer(testOpaque{}) }
}

// assault and spoil attack the memory that a process shares with its host; they are set on Linux.
var assault, spoil func() error

// writeLate makes a plugin attack the shared memory after it has answered, once a test has created
// "answered" in dir.
func writeLate(dir string) {
	go func() {
		for ; ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join(dir, "answered")); err == nil {
				break
			}
		}
		text := ""
		if err := assault(); err != nil {
			text = err.Error()
		}
		_ = os.WriteFile(filepath.Join(dir, "making"), []byte(text), 0o600)
		_ = os.Rename(filepath.Join(dir, "making"), filepath.Join(dir, "assaulted"))
	}()
}

// testOpaque sums gradients: s ← s + g, u = s. Its parameter "do" makes it misbehave in the second
// step; if "once" names a path, only once.
type testOpaque struct{}

func (testOpaque) Describe() sdk.Description {
	return sdk.Description{Name: "test",
		Parameters: []sdk.Parameter{sdk.String("do", "", "how to misbehave"),
			sdk.String("once", "", "a file that is made at the first time")}}
}

func (testOpaque) State(t sdk.Tensor) ([]spec.Tensor, error) {
	return []spec.Tensor{{Name: "s", Shape: t.Shape}}, nil
}

func (testOpaque) Step(in sdk.OpaqueStep, t sdk.Tensor) error {
	misbehaves := in.Step == 2
	if misbehaves && t.Text("do") == "late" {
		writeLate(t.Text("once"))
		misbehaves = false
	}
	if once := t.Text("once"); misbehaves && once != "" {
		misbehaves = os.Mkdir(once, 0o700) == nil
	}
	if misbehaves {
		in.Next["s"][0] = 77 // an incomplete result
		switch t.Text("do") {
		case "exit":
			os.Exit(7)
		case "spoil":
			if err := spoil(); err != nil {
				return err
			}
			os.Exit(7)
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "hang":
			time.Sleep(time.Hour)
		case "panic":
			panic("no luck")
		case "error":
			return errors.New("no luck")
		case "fault":
			in.State["s"][0]++
		case "shrink":
			fds, err := os.ReadDir("/proc/self/map_files")
			if err != nil {
				return err
			}
			for _, fd := range fds {
				path := "/proc/self/map_files/" + fd.Name()
				if to, _ := os.Readlink(path); filepath.Base(to) == "memfd:cage (deleted)" {
					return os.Truncate(path, 0)
				}
			}
			return errors.New("the memory is not found")
		}
	}
	for i, g := range in.Gradient {
		in.Next["s"][i] = in.State["s"][i] + g
		in.Direction[i] = in.Next["s"][i]
	}
	if misbehaves {
		switch t.Text("do") {
		case "nan":
			in.Direction[5] = float32(math.NaN())
		case "infinite":
			in.Next["s"][4] = float32(math.Inf(-1))
		}
	}
	return nil
}

// stepper returns a Stepper of the opaque plugin with two tensors.
func stepper(t *testing.T, values map[string]any) *Stepper {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("opaque optimizers need Linux")
	}
	c := start(t, "opaque", sdk.KindOptimizer, Options{})
	c.Close() // the stepper starts its own process
	v, err := c.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	var list []OpaqueTensor
	for name, shape := range map[string][]int{"a": {2, 3}, "b": {}} {
		tensor := sdk.Tensor{Name: name, Role: sdk.TensorMatrix, Shape: shape, Values: v}
		if name == "b" {
			tensor.Values, _ = c.Resolve(nil)
		}
		list = append(list, OpaqueTensor{Tensor: tensor, State: []spec.Tensor{{Name: "s", Shape: shape}},
			RateFactor: 1})
	}
	s, err := NewStepper(t.Context(), c, list)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// stepBuffers are the buffers of a tensor of [stepper], and of its state s.
type stepBuffers struct{ x, gradient, state, direction, next []float32 }

func buffersOf(s *Stepper, tensor string) stepBuffers {
	in, out := s.Buffers(tensor)
	state := program.KindState.PartOf(tensor, "s")
	return stepBuffers{in[program.KindOpaqueX.Of(tensor)],
		in[program.KindGivenGradient.Of(tensor)], in[state],
		out[program.KindDirection.Of(tensor)], out[state]}
}

// threeSteps runs three steps with gradients of 1, 2, 3, and returns the last directions, or the
// error of the second step.
func threeSteps(t *testing.T, s *Stepper) (u []float32, err error) {
	t.Helper()
	for step := 1; step <= 3; step++ {
		for _, name := range []string{"a", "b"} {
			b := buffersOf(s, name)
			for i := range b.x {
				b.x[i], b.gradient[i] = 1, float32(step)
			}
			copy(b.state, b.next)
		}
		a := buffersOf(s, "a")
		before := slices.Clone(a.state)
		if err := s.Step(step, 3, 0.1, 2); err != nil {
			if !slices.Equal(before, a.state) {
				t.Errorf("the state is %v after an error, and was %v", a.state, before)
			}
			if step != 2 {
				t.Fatal(err)
			}
			return nil, err
		}
	}
	return slices.Concat(buffersOf(s, "a").direction, buffersOf(s, "b").direction), nil
}

// TestOpaqueCrashes checks that a step that crashes or hangs once is repeated, with the same
// result.
func TestOpaqueCrashes(t *testing.T) {
	testlevel.Long(t, "waits for processes that crash")
	t.Setenv(StepTimeoutVariable, "1s")
	for _, do := range []string{"", "exit", "spoil", "kill", "hang"} {
		t.Run(do, func(t *testing.T) {
			s := stepper(t, map[string]any{"do": do, "once": filepath.Join(t.TempDir(), "once")})
			u, err := threeSteps(t, s)
			if err != nil {
				t.Fatal(err)
			}
			if want := []float32{6, 6, 6, 6, 6, 6, 6}; !slices.Equal(u, want) {
				t.Errorf("u = %v, want %v", u, want)
			}
		})
	}
}

// TestOpaqueStop checks that a step is not repeated once the run is asked to stop.
func TestOpaqueStop(t *testing.T) {
	t.Setenv(StepTimeoutVariable, "500ms")
	s := stepper(t, map[string]any{"do": "hang"})
	asked, stop := context.WithCancel(t.Context())
	stop()
	s.asked = asked
	_, err := threeSteps(t, s)
	check(t, err, ErrTimeout, "did not answer within 500ms")
	if strings.Contains(err.Error(), "3 times") {
		t.Error(err)
	}
}

// TestOpaqueIsKilledBetweenSteps checks that a process that ends between steps is restarted.
func TestOpaqueIsKilledBetweenSteps(t *testing.T) {
	s := stepper(t, nil)
	for step := 1; step <= 2; step++ {
		if err := s.Step(step, 2, 0, 0); err != nil {
			t.Fatal(err)
		}
		pid := s.running.PID()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// opaqueFailures lists steps that fail repeatedly, or would fail again, and the expected errors.
var opaqueFailures = []struct {
	do    string
	kind  error
	words []string
}{
	{"exit", ErrShutdown, []string{"exited with status 7, 3 times in a row in this step"}},
	{"hang", ErrTimeout, []string{"did not answer within 500ms (CAGE_PLUGIN_STEP_TIMEOUT=5m",
		"3 times"}},
	{"panic", ErrFailed, []string{"a: panic: no luck (opaque_test.go"}},
	{"error", ErrFailed, []string{"a: no luck"}},
	{"fault", ErrFailed, []string{"a: panic: it writes to X, Gradient or State"}},
	{"nan", ErrFailed, []string{
		": a: it wrote NaN to element 5 of the direction; all that it was given is finite"}},
	{"infinite", ErrFailed, []string{": a: it wrote -Inf to element 4 of the state s"}},
	{"shrink", ErrFailed, []string{"a: truncate"}},
}

// TestOpaqueFailures checks that the errors of these steps name the plugin and, unless the process
// has ended or hangs, the tensor.
func TestOpaqueFailures(t *testing.T) {
	t.Setenv(StepTimeoutVariable, "500ms")
	for _, c := range opaqueFailures {
		t.Run(c.do, func(t *testing.T) {
			t.Parallel()
			_, err := threeSteps(t, stepper(t, map[string]any{"do": c.do}))
			check(t, err, c.kind, append(c.words, "plugin opaque")...)
		})
	}
}
