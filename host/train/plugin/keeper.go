package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/cage-qat/cage/sdk/program"
)

// keeper runs a plugin that computes on tensors in its own process. It restarts the process when it
// has crashed or does not answer, and owns the memory that host and plugin share.
//
// The plugin can write to the shared memory at any time, even after it has answered. So the host
// works on a private copy, which is written to the shared memory before each call; afterwards only
// results are read back. The host uses file reads and writes for this, which fail instead of
// raising a signal if a plugin truncates the memory.
type keeper struct {
	origin   *Client         // restarted to start the process; it may be closed
	running  *Client         // nil: not running
	asked    context.Context // ends when the run is asked to stop: then no call is repeated
	call     string          // the kind of call, for messages: step or search
	attach   callFunc
	memory   *sharedMemory
	own      []float32 // the host's private copy
	variable string    // environment variable that sets the time limit
	timeout  time.Duration
}

type callFunc func(context.Context, *Client) error

// result is a tensor that a call computes, with its offset in bytes, and names for messages.
type result struct {
	at           int64
	shape        []int
	tensor, what string
}

// pauses are the delays before the first, second and third attempt at a call.
var pauses = []time.Duration{0, 100 * time.Millisecond, 2 * time.Second}

// open creates the memory and starts the process, which runs until Close even if ctx is canceled.
// timeout is the time limit for calls, unless the environment variable sets another. Errors are
// [*Error].
func (k *keeper) open(ctx context.Context, bytes int64, variable string,
	timeout time.Duration) error {
	k.asked, k.variable, k.timeout = ctx, variable, timeout
	if text := os.Getenv(variable); text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil || limit <= 0 {
			return k.origin.exe.complete(failure(ErrStart,
				"%s is %q: want a time, such as 30s or 2m", variable, text))
		}
		k.timeout = limit
	}
	var err error
	if k.memory, err = newSharedMemory(bytes); err != nil {
		return k.origin.exe.complete(failure(ErrStart, "%w", err))
	}
	k.own = make([]float32, bytes/4)
	if err := k.start(ctx); err != nil {
		k.Close()
		return err
	}
	return nil
}

func (k *keeper) start(ctx context.Context) error {
	c, err := k.origin.Restart(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	k.running = c
	attach := func(ctx context.Context) error { return k.attach(ctx, c) }
	return c.callWithin(ctx, c.opts.CallTimeout, moreTime, "", attach)
}

// Close ends the process and frees the memory.
func (k *keeper) Close() {
	k.stop()
	k.memory.close()
}

func (k *keeper) stop() {
	if k.running != nil {
		k.running.Close()
		k.running = nil
	}
}

// view returns the tensor at an offset, in bytes, in the host's private copy.
func (k *keeper) view(at int64, shape []int) []float32 {
	n := program.FloatType(shape...).Size()
	return k.own[at/4:][:n:n]
}

// ask makes a call and reads back the results in list. After a crash or a timeout, it restarts the
// plugin and repeats the call, at most twice, unless the run is asked to stop. Errors are [*Error].
func (k *keeper) ask(ctx context.Context, step int, call callFunc, list []result) (err error) {
	for i, pause := range pauses {
		time.Sleep(pause)
		if err = k.try(ctx, call, list); err == nil {
			return nil
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			k.stop() // it may still compute
			return err
		}
		if !errors.Is(err, ErrShutdown) && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrStart) {
			return err
		}
		k.stop()
		if k.asked.Err() != nil {
			return err
		}
		if i+1 < len(pauses) {
			k.origin.opts.Logger.Warn("a plugin's "+k.call+" failed and will be repeated", "step", step,
				"after", pauses[i+1], "error", err)
		}
	}
	e := *err.(*Error)
	e.Err = fmt.Errorf("%w, %d times in a row in this %s", e.Err, len(pauses), k.call)
	return &e
}

// try starts the plugin if it is not running, makes the call once, reads back the results and
// checks that they are finite.
func (k *keeper) try(ctx context.Context, call callFunc, list []result) error {
	if k.running == nil {
		if err := k.start(ctx); err != nil {
			return err
		}
	}
	sharing := func(err error) error {
		return k.origin.exe.complete(failure(ErrFailed, "the memory that it shares: %w", err))
	}
	if _, err := k.memory.file.WriteAt(asBytes(k.own), 0); err != nil {
		return sharing(err)
	}
	c, hint := k.running, " ("+k.variable+"=5m allows five minutes)"
	err := c.callWithin(ctx, k.timeout, hint, "", func(ctx context.Context) error {
		return call(ctx, c)
	})
	if err != nil {
		return err
	}
	for _, w := range list {
		values := k.view(w.at, w.shape)
		if _, err := k.memory.file.ReadAt(asBytes(values), w.at); err != nil {
			return sharing(err)
		}
		i := slices.IndexFunc(values, func(v float32) bool { return v-v != 0 }) // NaN or infinite
		if i >= 0 {
			e := failure(ErrFailed, "it wrote %v to element %d of %s; all that it was given is finite",
				values[i], i, w.what)
			e.Site = w.tensor
			return k.origin.exe.complete(e)
		}
	}
	return nil
}

func asBytes(values []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))
}
