package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/sdk/program"
)

// keeper holds the process of a plugin that computes itself, starts it again when it has crashed or does not answer, and
// has the memory that both share.
//
// The plugin can write to the shared memory at any time, also after it has answered. So the host works on memory of its own
// with the same layout: it is copied to the plugin before each call, and what the call has written is copied back and
// checked there. Nothing else is ever read from the shared memory.
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

// place names a tensor in the memory. What it is besides x, such as a state, is said by kind and, of several, name.
type place struct{ tensor, kind, name string }

// span is where a tensor is, in bytes, and its number of elements.
type span struct {
	at int64
	n  int
}

func spanOf(at int64, shape []int) span { return span{at, int(program.FloatType(shape...).Size())} }

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
	k.own = make([]float32, bytes/4)
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

// floats views a tensor in the host's memory.
func (k *keeper) floats(p place) []float32 {
	at, ok := k.spans[p]
	if !ok {
		panic(fmt.Sprintf("there is no %+v", p))
	}
	return at.in(k.own)
}

func (s span) in(memory []float32) []float32 { return memory[s.at/4:][:s.n:s.n] }

// shared views the memory that the plugin can write.
func (k *keeper) shared() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&k.memory.data[0])), len(k.own))
}

// give copies all of the host's memory to the plugin.
func (k *keeper) give() {
	group := sideBySide()
	inParts(group, k.own, k.shared(), func(_ int, own, shared []float32) { copy(shared, own) })
	_ = group.Wait()
}

func sideBySide() *errgroup.Group {
	group := &errgroup.Group{}
	group.SetLimit(runtime.GOMAXPROCS(0))
	return group
}

// inParts calls f for parts of two lists of the same length, as tasks of a group. first is the index of a part's first element.
func inParts(group *errgroup.Group, a, b []float32, f func(first int, a, b []float32)) {
	const part = 1 << 18 // elements; their time is far above that of a goroutine
	for first := 0; first < len(a); first += part {
		last := min(len(a), first+part)
		group.Go(func() error {
			f(first, a[first:last], b[first:last])
			return nil
		})
	}
}

// ask makes a call, and takes what it has written. After a crash, and when there is no answer within the time limit, the
// plugin is started again, and the call is made again, twice at most. Errors are [*Error].
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
	k.give()
	c := k.running
	return c.callWithin(ctx, k.timeout, " ("+k.variable+"=5m allows five minutes)", "", func(ctx context.Context) error { return call(ctx, c) })
}

// intake copies what a plugin has written and verifies that the copy is finite, side by side.
type intake struct {
	*keeper
	group *errgroup.Group
	found atomic.Pointer[Error]
}

// take copies one tensor; what says in words which it is.
func (w *intake) take(p place, what string) {
	inParts(w.group, w.floats(p), w.spans[p].in(w.shared()), func(first int, own, shared []float32) {
		copy(own, shared)
		if finite(own) {
			return
		}
		i := slices.IndexFunc(own, func(v float32) bool { return v-v != 0 })
		e := failure(ErrFailed, "it wrote %v to element %d of %s; all that it was given is finite", own[i], first+i, what)
		e.Site = p.tensor
		w.found.Store(e)
	})
}

// wait returns what is wrong, if anything is, as an error of the plugin.
func (w *intake) wait() error {
	_ = w.group.Wait()
	if e := w.found.Load(); e != nil {
		return w.origin.exe.complete(e)
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
