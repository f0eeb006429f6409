package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
)

// A closed session hangs up on its processes, twice: the system does and the shell does.
func TestHangUpSaves(t *testing.T) {
	t.Parallel()
	// Under nohup these tests ignore SIGHUP, and so would what they start. A signal that
	// is caught is not ignored in a new process.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	file, dir := toyRun(t, endless)
	var said bytes.Buffer
	cmd := command(t, "train", "--quiet", file)
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	awaitGrowth(t, rundir.At(dir).Metrics().Name, 0)
	for range 2 {
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if got := code(t, cmd); got != exitInterrupted || !strings.Contains(said.String(), "--resume") {
		t.Errorf("exit code %d, want %d; it said %q", got, exitInterrupted, said.String())
	}
	if saved(t, dir) == 0 {
		t.Error("there is no checkpoint")
	}
}

// SIGQUIT saves, as SIGTERM does.
func TestQuitSaves(t *testing.T) {
	t.Parallel()
	file, dir := toyRun(t, endless)
	cmd := command(t, "train", "--quiet", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	awaitGrowth(t, rundir.At(dir).Metrics().Name, 0)
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if got := code(t, cmd); got != exitInterrupted {
		t.Errorf("exit code %d, want %d", got, exitInterrupted)
	}
	if saved(t, dir) == 0 {
		t.Error("there is no checkpoint")
	}
}

// Of a process that does not stop, a second SIGQUIT shows the stacks. The process is this test, started by itself.
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
	var said bytes.Buffer
	cmd.Stderr = &said
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
			t.Fatalf("it said %q, want %q", lines.Text(), want)
		}
		if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for err = nil; err == nil; { // the second takes its effect a moment after the first was told
		select {
		case err = <-ended:
		case <-time.After(20 * time.Millisecond):
			_ = cmd.Process.Signal(syscall.SIGQUIT)
		}
	}
	if !strings.Contains(said.String(), "SIGQUIT: quit") || !strings.Contains(said.String(), "TestSecondQuit") {
		t.Errorf("it ended with %v and said:\n%s", err, said.String())
	}
}

// Under nohup a training stays when the session closes.
func TestNohup(t *testing.T) {
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Skip(err)
	}
	t.Parallel()
	file, dir := toyRun(t, endless)
	cmd := command(t, "train", "--quiet", file)
	cmd.Path, cmd.Args = nohup, append([]string{nohup, cmd.Path}, cmd.Args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	size := awaitGrowth(t, rundir.At(dir).Metrics().Name, 0)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	size = awaitGrowth(t, rundir.At(dir).Metrics().Name, size)
	awaitGrowth(t, rundir.At(dir).Metrics().Name, size)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if got := code(t, cmd); got != exitInterrupted {
		t.Errorf("exit code %d, want %d", got, exitInterrupted)
	}
}
