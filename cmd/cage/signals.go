package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruptible returns a context that ends with the first signal that asks this
// process to stop: SIGINT, SIGTERM, or SIGHUP, unless that was ignored at the start, as
// under nohup. A second SIGINT or SIGTERM ends the process at once. A second SIGHUP does
// nothing: when a session closes, the system sends one and the shell another.
func interruptible() (context.Context, func()) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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

// keepWriting turns SIGPIPE, which ends a process that writes to a closed standard
// output or error, into an error of the write. Unlike a signal that is ignored, one
// that is caught is not passed on to plugins and other children.
func keepWriting() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
