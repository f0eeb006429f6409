package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/cage-qat/cage/host/rundir"
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
