package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// interruptible returns a context that ends with the first signal that asks this
// process to stop: SIGINT, SIGTERM, SIGQUIT, or SIGHUP, unless that was ignored at the
// start, as under nohup. A second SIGINT or SIGTERM ends the process at once, and so does a
// second SIGQUIT, with the stacks of all goroutines: what it did when it did not stop. A
// second SIGHUP does nothing: when a session closes, the system sends one and the shell
// another.
func interruptible() (context.Context, func()) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	context.AfterFunc(ctx, stop)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, stop
	}
	ctx, hangUp := context.WithCancel(ctx)
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, syscall.SIGHUP)
	go func() {
		select {
		case <-closed:
			hangUp()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { hangUp(); stop() }
}

// lifelineFlag adds --lifeline to a command that other programs start.
func lifelineFlag(cmd *cobra.Command, lifeline *bool) {
	cmd.Flags().BoolVar(lifeline, "lifeline", false, "stop as on Ctrl-C when standard input ends: for a program that starts this one")
}

// watchLifeline interrupts this process when its standard input ends, if that is its lifeline.
func watchLifeline(lifeline bool) {
	if lifeline {
		go interruptAtEnd(os.Stdin)
	}
}

// stopTimeout is how long the command may take to stop after standard input has ended.
const stopTimeout = time.Minute

// interruptAtEnd interrupts this process when in ends: the program at the other end wants it to stop, or has ended itself.
func interruptAtEnd(in io.Reader) {
	_, _ = io.Copy(io.Discard, in)
	self, err := os.FindProcess(os.Getpid())
	if err == nil && self.Signal(os.Interrupt) == nil {
		time.Sleep(stopTimeout)
	}
	os.Exit(exitInterrupted)
}
