package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
)

// startEndless starts an endless training, and waits for its first records. The training is started
// by the program nohup, if that is not empty.
func startEndless(t *testing.T, nohup string) (cmd *exec.Cmd, dir string, stderr *bytes.Buffer) {
	t.Helper()
	file, dir := toyRun(t, endless)
	cmd, stderr = command(t, "train", "--quiet", file), &bytes.Buffer{}
	if nohup != "" {
		cmd.Path, cmd.Args = nohup, append([]string{nohup, cmd.Path}, cmd.Args[1:]...)
	}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	awaitGrowth(t, rundir.At(dir).Metrics().Name, 0)
	return cmd, dir, stderr
}

// TestSignalsSave checks that a training saves a checkpoint on signals.
func TestSignalsSave(t *testing.T) {
	t.Parallel()
	// Under nohup, these tests ignore SIGHUP, and child processes inherit that. A signal that is
	// caught is not ignored in child processes.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	for name, signals := range map[string][]syscall.Signal{
		// when a session closes, the kernel sends one and the shell another
		"SIGHUP":  {syscall.SIGHUP, syscall.SIGHUP},
		"SIGQUIT": {syscall.SIGQUIT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, dir, stderr := startEndless(t, "")
			for _, s := range signals {
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			if got := code(t, cmd); got != exitInterrupted ||
				!strings.Contains(stderr.String(), "--resume") {
				t.Errorf("exit code %d, want %d; standard error %q", got, exitInterrupted, stderr)
			}
			if newestStep(t, dir) == 0 {
				t.Error("there is no checkpoint")
			}
		})
	}
}

// TestInterruptedWhileJoining checks that a process that waits for others can be interrupted, and
// leaves no file.
func TestInterruptedWhileJoining(t *testing.T) {
	t.Parallel()
	for rank := range 2 {
		file, dir := toyRun(t, endless)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		cmd, stderr := command(t, "train", file, "--processes", fmt.Sprintf("%d/1024@%s", rank, address)),
			&bytes.Buffer{}
		cmd.Stderr = stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		if rank == 0 {
			for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
				if conn, err := net.Dial("tcp", address); err == nil {
					conn.Close()
					break
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if got := code(t, cmd); got != exitInterrupted || stderr.String() != "cage: interrupted\n" {
			t.Errorf("process %d: exit code %d, want %d; standard error %q", rank, got, exitInterrupted,
				stderr)
		}
		if left, _ := os.ReadDir(rundir.At(dir).Checkpoints().Name); len(left) > 0 {
			t.Errorf("process %d leaves %v", rank, left)
		}
	}
}

// TestSecondQuit checks that a second SIGQUIT prints the stacks of a process that does not stop.
// The process is this test binary.
func TestSecondQuit(t *testing.T) {
	if os.Getenv("CAGE_TEST_STUCK") != "" {
		ctx, stop := interruptible()
		defer stop()
		fmt.Println("begun")
		<-ctx.Done()
		fmt.Println("asked to stop")
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondQuit$")
	cmd.Env = append(os.Environ(), "CAGE_TEST_STUCK=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for _, want := range []string{"begun", "asked to stop"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it printed %q, want %q", lines.Text(), want)
		}
		if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for err = nil; err == nil; { // a second signal has this effect only shortly after the first
		select {
		case err = <-ended:
		case <-time.After(20 * time.Millisecond):
			_ = cmd.Process.Signal(syscall.SIGQUIT)
		}
	}
	if !strings.Contains(stderr.String(), "SIGQUIT: quit") ||
		!strings.Contains(stderr.String(), "TestSecondQuit") {
		t.Errorf("it ended with %v and wrote to its standard error:\n%s", err, stderr.String())
	}
}

// TestLifelineAndSignals checks that a process with a lifeline stops cleanly, however many signals
// it receives: Slurm sends SIGTERM to all processes of a task, including the parent, which holds
// the other end of the lifeline. The process is this test binary.
func TestLifelineAndSignals(t *testing.T) {
	if os.Getenv("CAGE_TEST_LIFELINE") != "" {
		ctx, stop := interruptible()
		defer stop()
		watchParent(time.Minute)
		fmt.Println("begun")
		<-ctx.Done()
		fmt.Println("asked to stop")
		time.Sleep(500 * time.Millisecond) // as if it saved a checkpoint
		fmt.Println("stopped")
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLifelineAndSignals$")
	cmd.Env = append(os.Environ(), "CAGE_TEST_LIFELINE=1")
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it printed %q, want %q", lines.Text(), want)
		}
	}
	expect("begun")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	expect("asked to stop")
	_ = lifeline.Close()
	for range 10 { // a second signal can have an effect only shortly after the first
		_ = cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(20 * time.Millisecond)
	}
	expect("stopped")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestNohup checks that under nohup, a training continues when the session closes.
func TestNohup(t *testing.T) {
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Skip(err)
	}
	t.Parallel()
	cmd, dir, _ := startEndless(t, nohup)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	metrics := rundir.At(dir).Metrics().Name
	size := awaitGrowth(t, metrics, 0)
	awaitGrowth(t, metrics, awaitGrowth(t, metrics, size))
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if got := code(t, cmd); got != exitInterrupted {
		t.Errorf("exit code %d, want %d", got, exitInterrupted)
	}
}
