package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// If partVariable is set, the test binary joins a group, with the run directory in runVariable, and
// then sleeps.
const (
	partVariable = "CAGE_TEST_PROCESSES"
	runVariable  = "CAGE_TEST_RUN"
)

func TestMain(m *testing.M) {
	reminder, tokenTimeout, voteReminder = time.Second, 500*time.Millisecond, 5*time.Second
	if source := os.Getenv(partVariable); source != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		position, err := Find(source, os.Getenv)
		if err == nil {
			_, err = Join(ctx, position,
				Run{vfs.At(os.Getenv(runVariable)), func(message string) { fmt.Println(message) }})
		}
		stop()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		time.Sleep(time.Minute)
	}
	os.Exit(m.Run())
}

// address returns an address at which nothing listens.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newRun returns a run with its own directory.
func newRun(t *testing.T) Run {
	return Run{Dir: vfs.At(filepath.Join(t.TempDir(), "run"))}
}

// start starts a process of a group.
func start(t *testing.T, rank, size int, at string, run Run) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd, output := exec.Command(os.Args[0]), &bytes.Buffer{}
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d/%d@%s", partVariable, rank, size, at),
		runVariable+"="+run.Dir.Name)
	cmd.Stdout = output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, output
}

// join joins a group of the given size with each of the ranks, all in this process.
func join(t *testing.T, size int, ranks ...int) []*Group {
	t.Helper()
	at, run := address(t), newRun(t)
	groups := make([]*Group, len(ranks))
	var wait sync.WaitGroup
	for i, rank := range ranks {
		wait.Go(func() {
			g, err := Join(t.Context(), Position{rank, size, at, -1}, run)
			if err != nil {
				t.Error(err)
			}
			groups[i] = g
		})
	}
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return groups
}

func TestValues(t *testing.T) {
	groups := join(t, 3, 0, 1, 2)
	for i, g := range groups {
		key := fmt.Sprint("from ", i)
		for j, other := range groups {
			if _, found, err := other.Get(key, 0); found || err != nil {
				t.Errorf("process %d finds %q before it is there: %v", j, key, err)
			}
			if _, found, err := other.Get(key, time.Millisecond); found || err != nil {
				t.Errorf("process %d waited for %q: %t, %v", j, key, found, err)
			}
		}
		var wait sync.WaitGroup
		for j, other := range groups {
			wait.Go(func() {
				if value, found, err := other.Get(key, time.Minute); string(value) != "x\x00y" || !found ||
					err != nil {
					t.Errorf("process %d gets %q, %t, %v", j, value, found, err)
				}
			})
		}
		if err := g.Put(key, []byte("x\x00y")); err != nil {
			t.Error(err)
		}
		wait.Wait()
	}
	for round := range 3 { // a name can be used again
		var wait sync.WaitGroup
		for i, g := range groups {
			wait.Go(func() {
				if values, err := g.Agree("name", int64(10*i+round)); err != nil ||
					!slices.Equal(values, []int64{int64(round), int64(10 + round), int64(20 + round)}) {
					t.Errorf("process %d: %v, %v", i, values, err)
				}
			})
		}
		wait.Wait()
	}
	if n := len(groups[0].store.ballots); n != 0 {
		t.Errorf("%d votes are kept", n)
	}
	var wait sync.WaitGroup
	for _, g := range groups {
		wait.Go(func() { g.Leave(nil) })
	}
	wait.Wait()
	for i, g := range groups {
		if err := g.Err(); err != nil {
			t.Errorf("process %d: %v, after all have left", i, err)
		}
	}
}

// TestFailure checks that the failure of one process is the error of the others.
func TestFailure(t *testing.T) {
	for _, failing := range []int{0, 1} {
		groups := join(t, 3, 0, 1, 2)
		waiting := make(chan error, 1)
		go func() {
			_, err := groups[2].Agree("never", 0)
			waiting <- err
		}()
		groups[failing].Leave(errors.New("no room\nand more"))
		for i, g := range groups {
			if i == failing {
				continue
			}
			<-g.Gone()
			if err := g.Err(); !strings.Contains(err.Error(),
				fmt.Sprintf("process %d of 3 (on ", failing)) ||
				!strings.HasSuffix(err.Error(), "has failed: no room") {
				t.Errorf("process %d says %v", i, err)
			}
			g.Leave(g.Err())
		}
		if err := <-waiting; err == nil || !strings.HasSuffix(err.Error(), "has failed: no room") {
			t.Errorf("a vote ends with %v", err)
		}
	}
}

// TestKilled checks that the others notice quickly that a process has been killed.
func TestKilled(t *testing.T) { lose(t, syscall.SIGKILL, 5*time.Second) }

// TestSilent checks that they also notice, a little later, a process that no longer responds, as
// after a loss of power.
func TestSilent(t *testing.T) {
	testlevel.Long(t, "waits for an answer that never comes")
	lose(t, syscall.SIGSTOP, 2*keepaliveInterval+keepaliveTimeout+10*time.Second)
}

// lose sends a signal to one of two processes, and checks that the other notices the loss.
func lose(t *testing.T, signal syscall.Signal, within time.Duration) {
	for killed := range 2 {
		t.Run(fmt.Sprint(killed), func(t *testing.T) {
			t.Parallel()
			at, run := address(t), newRun(t)
			other, _ := start(t, killed, 2, at, run)
			g, err := Join(t.Context(), Position{1 - killed, 2, at, -1}, run)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := other.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			select {
			case <-g.Gone():
			case <-time.After(within):
				t.Fatal("nothing was noticed")
			}
			t.Logf("noticed after %v: %v", time.Since(began), g.Err())
			if want := fmt.Sprintf("process %d of 2", killed); !strings.Contains(g.Err().Error(), want) ||
				!strings.Contains(g.Err().Error(), "is gone") {
				t.Errorf("the error is %v, want %q in it", g.Err(), want)
			}
			if _, err := g.Agree("x", 0); err == nil || !strings.Contains(err.Error(), "is gone") {
				t.Errorf("a vote after it: %v", err)
			}
			g.Leave(g.Err())
		})
	}
}

func TestJoinRefuses(t *testing.T) {
	at, run := address(t), newRun(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := Join(ctx, Position{0, 3, at, -1}, run)
		first <- err
	}()
	for want, position := range map[string]Position{
		"it expects 2 processes, but process 0 expects 3": {1, 2, at, -1}} {
		if _, err := Join(t.Context(), position, run); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", position, err, want)
		}
	}
	one := make(chan error, 1)
	go func() {
		_, err := Join(t.Context(), Position{1, 3, at, -1}, run)
		one <- err
	}()
	time.Sleep(500 * time.Millisecond)
	if _, err := Join(t.Context(), Position{1, 3, at, -1}, run); err == nil ||
		!strings.Contains(err.Error(), "process 1 has already joined") {
		t.Errorf("twice the same: %v", err)
	}
	cancel()
	if err := <-first; err == nil ||
		!strings.Contains(err.Error(), "of 3 processes, ranks [2] have not joined") {
		t.Errorf("process 0 waited in vain: %v", err)
	}
	if err := <-one; err == nil ||
		!strings.Contains(err.Error(), "no longer waits for the processes [2]") {
		t.Errorf("process 1 waited in vain: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Join(ctx, Position{1, 2, at, -1}, run); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Join(t.Context(), Position{0, 2, at, -1}, run); err == nil ||
		!strings.Contains(err.Error(), "cannot listen at "+at) {
		t.Errorf("a port that is taken: %v", err)
	}
}
