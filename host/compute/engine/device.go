package engine

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/memory"
)

// Options are the settings of a device. A configuration validates them. The zero value is the
// recommended setting for every kind of device.
type Options struct {
	// Threads is the maximum number of worker goroutines of the CPU device. The default, 0, sets no
	// limit and is fastest: it keeps all processors busy. CUDA ignores it.
	Threads int

	// TF32 lets the CUDA device round the operands of float32 products to 10 bits of mantissa, which
	// is faster. The default is exact float32. The CPU ignores it.
	TF32 bool

	// Count is the number of replicas, each on its own GPU, that run every executable in parallel; 0
	// means 1. See the package documentation.
	Count int

	// Processes, unless nil, connects the processes that share the Count replicas equally. The CPU
	// device has only one replica, hence one process.
	Processes Processes

	// Precision is the operand type of the matrix products that are built with [DotGeneral];
	// [device.Float32] if empty. On the CPU device [device.BFloat16] is faster than float32 if the
	// processor multiplies bfloat16.
	Precision device.Precision

	// Attention selects how models compute attention; [device.AutoAttention] if empty. GPUs with
	// precision float32 ignore it.
	Attention device.Attention

	// Kernels selects how plugin programs are computed; [device.AutoKernels] if empty.
	Kernels device.Kernels

	// Products selects how quantized matrices are multiplied; [device.FloatProducts] if empty.
	Products device.Products

	// Allocator selects how the CUDA device allocates GPU memory; [device.DefaultAllocator] if
	// empty. MemoryFraction is the fraction of a GPU's memory that it may use; 0 means XLA's
	// default. Preallocate reserves that memory at the start. The CPU ignores all three.
	Allocator      device.Allocator
	Preallocate    bool
	MemoryFraction float64

	// Cache is a directory where XLA keeps autotuning results for later processes; none if empty.
	// The first CUDA device opened in a process determines it. The CPU ignores it.
	Cache string

	// Timeout is the time after which an execution, an upload or a download on the CUDA device fails
	// with a [HangError]; 0 sets no limit. The CPU ignores it.
	Timeout time.Duration

	// Warn receives warnings, with details as key-value pairs. Nil discards them.
	Warn func(message string, details ...any)
}

// A Device compiles and runs executables, and owns their buffers. Its methods, except Close, may be
// called concurrently.
type Device struct {
	kind     string
	options  Options
	client   client // nil on the CPU
	closed   atomic.Bool
	workers  *workers // of the CPU device
	compiled atomic.Int64
	found    sync.Map // maps keys to func() any; see Once
	memory   memory.Pool

	// hung is closed when a call did not end in time; the device is no longer used. hang closes it.
	hung chan struct{}
	hang func()
}

func newDevice(kind string, options Options, client client) *Device {
	hung := make(chan struct{})
	return &Device{kind: kind, options: options, client: client, hung: hung,
		hang: sync.OnceFunc(func() { close(hung) })}
}

// Kinds lists the names that [Open] accepts, sorted.
func Kinds() []string { return []string{device.CPU, device.CUDA} }

// Built lists the kinds that this build supports, sorted. CUDA requires the build tag "cuda".
func Built() []string {
	if builtCUDA {
		return Kinds()
	}
	return []string{device.CPU}
}

// Open opens a device of one of the [Kinds]. Options with their zero value get their defaults.
func Open(kind string, opts Options) (*Device, error) {
	if !slices.Contains(Kinds(), kind) {
		return nil, fmt.Errorf("unknown device %q: want one of %s", kind, strings.Join(Kinds(), ", "))
	}
	opts.Count = cmp.Or(opts.Count, 1)
	opts.Precision = cmp.Or(opts.Precision, device.Float32)
	opts.Attention = cmp.Or(opts.Attention, device.AutoAttention)
	opts.Kernels = cmp.Or(opts.Kernels, device.AutoKernels)
	opts.Products = cmp.Or(opts.Products, device.FloatProducts)
	opts.Allocator = cmp.Or(opts.Allocator, device.DefaultAllocator)
	have, client := 1, client(nil)
	err := catch(func() (err error) {
		if kind == device.CPU {
			_, err = ProductTier()
			return err
		}
		if client, err = openCUDA(opts); err == nil {
			have = client.devices()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening device %q: %w", kind, err)
	}
	d := newDevice(kind, opts, client)
	if kind == device.CPU {
		d.workers = newWorkers(opts.Threads)
	}
	if have < opts.Count {
		return nil, errors.Join(&CountError{kind, opts.Count, have}, d.Close())
	}
	return d, nil
}

// Kind returns the kind of the device, as given to [Open].
func (d *Device) Kind() string { return d.kind }

// Count returns the number of replicas, which is at least one.
func (d *Device) Count() int { return d.options.Count }

// Description returns a human-readable description of the device.
func (d *Device) Description() string {
	if d.kind == device.CPU {
		tier, _ := ProductTier() // without one the device is not open
		return fmt.Sprintf("%d processors, products by %s", d.Workers(), tier.Name())
	}
	return d.client.description()
}

// Compiled returns the number of executables that have been compiled for the device so far.
func (d *Device) Compiled() int { return int(d.compiled.Load()) }

// Workers returns the maximum number of goroutines that compute at once, the caller's included:
// Threads, or GOMAXPROCS if Threads is 0.
func (d *Device) Workers() int {
	if d.options.Threads > 0 {
		return d.options.Threads
	}
	return runtime.GOMAXPROCS(0)
}

// SharesMemory reports whether buffers are in the host's memory, so that [Data] gives access to
// them.
func (d *Device) SharesMemory() bool { return d.kind == device.CPU }

// UsesPlans reports whether the device, which may be nil, computes programs by plans. The CPU
// device does, unless a test asks for graphs.
func (d *Device) UsesPlans() bool {
	return d != nil && d.kind == device.CPU &&
		(d.options.Kernels == device.AutoKernels || d.options.Kernels == device.FusedKernels)
}

// Memory returns the pool of the memory in which functions of the CPU device work.
func (d *Device) Memory() *memory.Pool { return &d.memory }

// Precision returns the operand type of the products built with [DotGeneral].
func (d *Device) Precision() device.Precision { return d.options.Precision }

// Attention returns the configured implementation of attention.
func (d *Device) Attention() device.Attention { return d.options.Attention }

// Kernels returns the configured method to compute plugin programs.
func (d *Device) Kernels() device.Kernels { return d.options.Kernels }

// Products returns the configured method to multiply quantized matrices.
func (d *Device) Products() device.Products { return d.options.Products }

// Warn passes a message to the function given in [Options].
func (d *Device) Warn(message string, details ...any) {
	if d.options.Warn != nil {
		d.options.Warn(message, details...)
	}
}

// Once calls find the first time it is called with a key on this device, and returns that result
// from then on. It is meant for facts about a device that are found by trial: find may compile and
// run steps. Keys should be of a type private to the caller.
func (d *Device) Once(key any, find func() any) any {
	f, _ := d.found.LoadOrStore(key, sync.OnceValue(find))
	return f.(func() any)()
}

// Close frees the device. Its executables and buffers are unusable afterwards. Closing a device
// again does nothing.
func (d *Device) Close() error {
	if d.gone() {
		return nil
	}
	d.closed.Store(true)
	if d.client == nil {
		return nil
	}
	return catch(d.client.close)
}

// gone reports whether the device is closed or hangs, so that nothing can be freed.
func (d *Device) gone() bool { return d.hangs() || d.closed.Load() }

// hangs reports whether a call did not end in time.
func (d *Device) hangs() bool {
	select {
	case <-d.hung:
		return true
	default:
		return false
	}
}

// execute calls f, an execution, and returns early as within does, or when another process is lost.
func (d *Device) execute(f func() error) error {
	var gone <-chan struct{}
	if d.options.Processes != nil {
		gone = d.options.Processes.Gone()
	}
	err := d.within(f, gone)
	if err != nil && !d.hangs() {
		err = d.lost(err)
	}
	return err
}

// within calls f, which waits for the device, and returns early at the device's timeout, when
// another call hangs, or when gone is closed. f cannot be interrupted: its goroutine leaks, and so
// do all buffers and executables of the device, until the process ends.
func (d *Device) within(f func() error, gone <-chan struct{}) error {
	limit := d.options.Timeout
	if limit <= 0 && d.options.Processes == nil || d.kind == device.CPU {
		return catch(f)
	}
	done := make(chan error, 1)
	go func() { done <- catch(f) }()
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case err := <-done:
		return err
	case <-gone:
		return d.lost(nil)
	case <-d.hung:
		if err := d.checkOpen(); err != errHangs {
			return err
		}
	case <-late:
		d.hang()
	}
	return &HangError{limit, d.Count()}
}

var (
	errClosed = errors.New("the device is closed")
	errHangs  = errors.New("the device has stopped answering and is no longer used")
)

func (d *Device) checkOpen() error {
	if d.hangs() {
		if p := d.options.Processes; p != nil && p.Err() != nil {
			return &LostError{Err: p.Err()}
		}
		return errHangs
	}
	if d.closed.Load() {
		return errClosed
	}
	return nil
}
