package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

// keeper holds the process of a plugin that computes itself, starts it again when it has crashed or
// does not answer, and has the memory that both share.
//
// The plugin can write to the shared memory at any time, also after it has answered. So the host
// works on memory of its own with the same layout: it is copied to the plugin before each call, and
// what the call has written is copied back and checked there. Nothing else is ever read from the
// shared memory.
type keeper struct {
	origin   *Client // what to start; it may be closed
	running  *Client // nil: not running
	call     string  // what it is called for, in words: step or search
	attach   func(context.Context, *Client) error
	memory   *sharedMemory
	own      []float32      // the host's
	spans    map[place]span // of what the memory holds
	variable string         // that sets the time limit
	timeout  time.Duration
}

// place names a tensor in the memory. What it is besides x, such as a state, is said by kind and,
// of several, name.
type place struct{ tensor, kind, name string }

// span is where a tensor is, in bytes, and its number of elements.
type span struct {
	at int64
	n  int
}

func spanOf(at int64, shape []int) span {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return span{at, n}
}

// pauses are those before a call is tried for the first, second and third time.
var pauses = []time.Duration{0, 100 * time.Millisecond, 2 * time.Second}

// open makes the memory and starts the process, which lives until Close, whatever becomes of ctx.
// The time limit of calls is the default, unless the environment variable says another. Errors are
// [*Error].
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
	return c.callWithin(ctx, c.opts.CallTimeout, moreTime, "", func(ctx context.Context) error { return k.attach(ctx, c) })
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

func (k *keeper) floats(p place) []float32 {
	at, ok := k.spans[p]
	if !ok {
		panic(fmt.Sprintf("there is no %+v", p))
	}
	return at.in(k.own)
}

func (s span) in(memory []float32) []float32 { return memory[s.at/4:][:s.n:s.n] }

// ask makes a call, and takes what it has written. After a crash, and when there is no answer
// within the time limit, the plugin is started again, and the call is made again, twice at most.
// Errors are [*Error].
func (k *keeper) ask(ctx context.Context, step int, call func(context.Context, *Client) error, take func() error) (err error) {
	for i, pause := range pauses {
		time.Sleep(pause)
		if err = k.try(ctx, call); err == nil {
			return take()
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
	x := k.exchange()
	x.give()
	if err := x.wait(); err != nil {
		return err
	}
	c := k.running
	return c.callWithin(ctx, k.timeout, " ("+k.variable+"=5m allows five minutes)", "", func(ctx context.Context) error { return call(ctx, c) })
}

// exchange copies between the host's memory and the plugin's, side by side. The plugin's is read
// and written as a file: what a plugin does to it is an error then, and no signal that ends the
// host.
type exchange struct {
	*keeper
	group errgroup.Group
}

func (k *keeper) exchange() *exchange {
	x := &exchange{keeper: k}
	x.group.SetLimit(runtime.GOMAXPROCS(0))
	return x
}

// parts calls f for parts of the host's memory, as bytes too.
func (x *exchange) parts(s span, f func(first int, part []float32, bytes []byte, at int64) error) {
	const most = 1 << 18 // elements; their time is far above that of a goroutine
	for first := 0; first < s.n; first += most {
		at, n := s.at+4*int64(first), min(s.n-first, most)
		part := span{at, n}.in(x.own)
		x.group.Go(func() error {
			return f(first, part, unsafe.Slice((*byte)(unsafe.Pointer(&part[0])), 4*n), at)
		})
	}
}

func (x *exchange) give() {
	x.parts(span{0, len(x.own)}, func(_ int, _ []float32, bytes []byte, at int64) error {
		return sharing(x.memory.file.WriteAt(bytes, at))
	})
}

// take copies a tensor that the plugin has written, and verifies that the copy is finite. what says
// which tensor it is.
func (x *exchange) take(p place, what string) {
	x.parts(x.spans[p], func(first int, part []float32, bytes []byte, at int64) error {
		err := sharing(x.memory.file.ReadAt(bytes, at))
		i := slices.IndexFunc(part, func(v float32) bool { return v-v != 0 }) // NaN or infinite
		if err != nil || i < 0 {
			return err
		}
		e := failure(ErrFailed, "it wrote %v to element %d of %s; all that it was given is finite", part[i], first+i, what)
		e.Site = p.tensor
		return e
	})
}

func sharing(_ int, err error) error {
	if err != nil {
		return failure(ErrFailed, "the memory that it shares: %w", err)
	}
	return nil
}

func (x *exchange) wait() error {
	if err := x.group.Wait(); err != nil {
		return x.origin.exe.complete(err)
	}
	return nil
}
