package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

// keeper holds the process of a plugin that computes itself, starts it again when it has crashed or does not answer, and
// has the memory that both share.
type keeper struct {
	origin   *Client // what to start; it may be closed
	running  *Client // nil: not running
	call     string  // what it is called for, in words: step or search
	attach   func(context.Context, *Client) error
	memory   *sharedMemory
	variable string // that sets the time limit
	timeout  time.Duration
}

// pauses are those before a call is tried for the first, second and third time.
var pauses = []time.Duration{0, 100 * time.Millisecond, 2 * time.Second}

// open makes the memory and starts the process, which lives until Close, whatever becomes of ctx. The time limit of calls is the
// default, unless the environment variable says another. Errors are [*Error].
func (k *keeper) open(ctx context.Context, bytes int64, variable string, timeout time.Duration) error {
	k.variable, k.timeout = variable, timeout
	if text := os.Getenv(variable); text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil || limit <= 0 {
			return k.origin.exe.complete(failure(ErrStart, "%s is %q: want a time, such as 30s or 2m", variable, text))
		}
		k.timeout = limit
	}
	var err error
	if k.memory, err = newSharedMemory(bytes); err != nil {
		return k.origin.exe.complete(failure(ErrStart, "%w", err))
	}
	if err := k.start(ctx); err != nil {
		k.Close()
		return err
	}
	return nil
}

// start starts the process and attaches the memory.
func (k *keeper) start(ctx context.Context) error {
	c, err := k.origin.Restart(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	k.running = c
	return c.callWithin(ctx, c.opts.CallTimeout, moreTime, "", func(ctx context.Context) error { return k.attach(ctx, c) })
}

// Close ends the process and frees the memory: nothing of it may be used any more.
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

// floats views n numbers at a place of the memory.
func (k *keeper) floats(at int64, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&k.memory.data[at])), n)
}

// ask makes a call, and looks at what it has written. After a crash, and when there is no answer within the time limit, the
// plugin is started again, and the call is made again, twice at most. Errors are [*Error].
func (k *keeper) ask(ctx context.Context, step int, call func(context.Context, *Client) error, check func() error) (err error) {
	for i, pause := range pauses {
		time.Sleep(pause)
		if err = k.try(ctx, call); err == nil {
			return check()
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) { // nobody waits any more
			k.stop() // it may still compute
			return err
		}
		if !errors.Is(err, ErrShutdown) && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrStart) {
			return err
		}
		k.stop()
		if i+1 < len(pauses) {
			k.origin.opts.Logger.Warn("a "+k.call+" of a plugin is tried again", "step", step, "after", pauses[i+1], "error", err)
		}
	}
	e := *err.(*Error)
	e.Err = fmt.Errorf("%w, %d times in a row in this %s", e.Err, len(pauses), k.call)
	return &e
}

// try starts the plugin, if it does not run, and makes the call once.
func (k *keeper) try(ctx context.Context, call func(context.Context, *Client) error) error {
	if k.running == nil {
		if err := k.start(ctx); err != nil {
			return err
		}
	}
	c := k.running
	return c.callWithin(ctx, k.timeout, " ("+k.variable+"=5m allows five minutes)", "", func(ctx context.Context) error { return call(ctx, c) })
}

// inspection verifies that what a plugin has written is finite, side by side.
type inspection struct {
	group errgroup.Group
	found atomic.Pointer[Error]
}

func newInspection() *inspection {
	w := &inspection{}
	w.group.SetLimit(runtime.GOMAXPROCS(0))
	return w
}

// check looks at the numbers of one tensor; what says which they are.
func (w *inspection) check(tensor, what string, list []float32) {
	const part = 1 << 18 // elements; their time is far above that of a goroutine
	for first := 0; first < len(list); first += part {
		list := list[first:min(len(list), first+part)]
		w.group.Go(func() error {
			if finite(list) {
				return nil
			}
			for i, v := range list {
				if v-v != 0 {
					e := failure(ErrFailed, "it wrote %v to element %d of %s; all that it was given is finite", v, first+i, what)
					e.Site = tensor
					w.found.Store(e)
					break
				}
			}
			return nil
		})
	}
}

// wait returns what is wrong, if anything is, as an error of the plugin.
func (w *inspection) wait(c *Client) error {
	_ = w.group.Wait()
	if e := w.found.Load(); e != nil {
		return c.exe.complete(e)
	}
	return nil
}

// finite reports whether all numbers are finite: an exponent of ones alone overflows into the bit of the sign, for two numbers at once.
func finite(list []float32) bool {
	const exponents, ones, signs = 0x7f800000_7f800000, 0x00800000_00800000, 0x80000000_80000000
	var bad uint64
	if len(list) >= 2 {
		pairs := unsafe.Slice((*uint64)(unsafe.Pointer(&list[0])), len(list)/2)
		for len(pairs) >= 4 {
			p := pairs[:4:4]
			bad |= (p[0]&exponents + ones) | (p[1]&exponents + ones) | (p[2]&exponents + ones) | (p[3]&exponents + ones)
			pairs = pairs[4:]
		}
		for _, p := range pairs {
			bad |= p&exponents + ones
		}
	}
	if n := len(list); n%2 == 1 && list[n-1]-list[n-1] != 0 {
		return false
	}
	return bad&signs == 0
}
