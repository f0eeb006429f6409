package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute"
)

// Kinds of devices that [Open] knows.
const (
	// CPU runs on the processor with GoMLX's Go backend; nothing has to be installed.
	CPU = "cpu"
	// CUDA runs on an NVIDIA GPU with XLA through a PJRT plugin; it exists in builds with the tag "cuda".
	CUDA = "cuda"
)

// Options are the settings of a device. The zero value is the recommended setting of every kind.
type Options struct {
	// Threads limits the worker goroutines of the CPU device: n > 0 allows n of them, 0 (the default) sets no limit,
	// which is the fastest setting and keeps as many busy as there are processors. Other kinds ignore it.
	Threads int

	// Plugin is the path of the PJRT plugin of the CUDA device, a shared library. Empty means: search for it, see
	// [FindCUDAPlugin]. Other kinds ignore it.
	Plugin string

	// TF32 lets the CUDA device round the operands of float32 products to 10 bits of mantissa, which is faster. The
	// default is exact float32. Other kinds ignore it.
	TF32 bool

	// Precision is the type in which steps multiply matrices where they ask for it with [DotGeneral], [Float32] if
	// empty. [BFloat16] on the CPU device computes the same as on others, but is no faster than float32.
	Precision Precision
}

// Precision is an element type of the operands of matrix products.
type Precision string

// The precisions.
const (
	Float32  Precision = "float32"
	BFloat16 Precision = "bfloat16"
)

// A Device compiles and runs steps, and owns the buffers it uploads and computes. Its methods may be called from
// several goroutines, except Close.
type Device struct {
	kind    string
	options Options
	backend compute.Backend
}

// openers maps each kind of device to the function that makes its backend.
var openers = map[string]func(Options) (compute.Backend, error){
	CPU:  openCPU,
	CUDA: openCUDA,
}

// Kinds lists the names that [Open] accepts, sorted.
func Kinds() []string {
	var kinds []string
	for kind := range openers {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// Built lists the kinds that this build has, sorted: CUDA needs the tag "cuda".
func Built() []string {
	if builtCUDA {
		return Kinds()
	}
	return []string{CPU}
}

// Open opens a device of the given kind, [CPU] or [CUDA]. The caller closes it.
func Open(kind string, opts Options) (*Device, error) {
	open, ok := openers[kind]
	if !ok {
		return nil, fmt.Errorf("unknown device %q: known are %s", kind, strings.Join(Kinds(), ", "))
	}
	if opts.Threads < 0 {
		return nil, fmt.Errorf("device %q: %d threads: want a positive number, or 0 for no limit", kind, opts.Threads)
	}
	if opts.Precision == "" {
		opts.Precision = Float32
	}
	if opts.Precision != Float32 && opts.Precision != BFloat16 {
		return nil, fmt.Errorf("device %q: precision %q: want %q or %q", kind, opts.Precision, Float32, BFloat16)
	}
	var backend compute.Backend
	err := catch(func() (err error) {
		backend, err = open(opts)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening device %q: %w", kind, err)
	}
	return &Device{kind: kind, options: opts, backend: backend}, nil
}

// Kind returns the kind of the device as it was given to [Open].
func (d *Device) Kind() string { return d.kind }

// Description says in words what the device is.
func (d *Device) Description() string { return d.backend.Description() }

// Threads is the limit of worker goroutines that the device was opened with, 0 for none.
func (d *Device) Threads() int { return d.options.Threads }

// Backend returns the GoMLX backend below the device, for code that asks for its capabilities.
func (d *Device) Backend() compute.Backend { return d.backend }

// Close frees the device. Its executables and buffers are unusable afterwards. Closing twice does nothing.
func (d *Device) Close() error {
	if d.backend.IsFinalized() {
		return nil
	}
	return catch(func() error {
		d.backend.Finalize()
		return nil
	})
}

// errClosed is what every operation of a closed device returns.
var errClosed = errors.New("the device is closed")

// checkOpen returns an error if the device was closed.
func (d *Device) checkOpen() error {
	if d.backend.IsFinalized() {
		return errClosed
	}
	return nil
}
