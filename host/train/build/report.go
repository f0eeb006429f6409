package build

import (
	"fmt"
	"math"
	"runtime/debug"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/step"
)

// By says where the numbers of a [Report] come from.
type By string

// The sources of a report.
const (
	BySizes By = "sizes" // [Estimate]
	ByXLA   By = "XLA"   // the compiler of the device, from the program of a step
)

// Report is the memory that a run needs, beside the memory that is available.
type Report struct {
	Bytes    float64 `json:"bytes"` // total; of each GPU
	Parts    []Part  `json:"parts"`
	Host     float64 `json:"host,omitempty"` // of the machine's memory, for each GPU that keeps states there
	By       By      `json:"by"`
	Accuracy float64 `json:"accuracy"`          // the share by which it may be off; 0 by XLA
	Seconds  float64 `json:"seconds,omitempty"` // how long XLA took to compile
	Reason   string  `json:"reason,omitempty"`  // why XLA was not asked about a GPU
	// Available is nil if it is not known how much the machine, or the GPU, has.
	Available *Available `json:"available,omitempty"`
	Fits      bool       `json:"fits"`
	Changes   []string   `json:"changes,omitempty"` // what needs less, if it does not fit

	sizes Sizes
}

// The share by which the estimate may be off. Of the steps on a GPU that it was fitted to, and most
// others that were compiled, it is off by 6 %; by 16 % of one whose attention has scores of 4,096
// tokens. A run that would fit if the estimate is too high by that share is not refused.
const (
	Accuracy      = 0.25
	AccuracyOnGPU = 0.2
)

// addressable is more than a process can have on the machines of today (48 bits of address, half of them its own).
const addressable = 1 << 47

// NewReport estimates what a run needs, and compares it with what is available; nil if that is not known.
func NewReport(s Sizes, available *Available) *Report {
	need := Estimate(s)
	r := &Report{Bytes: need.Total(), Parts: need.Parts(), Host: need.Host, By: BySizes, Accuracy: Accuracy, Available: available}
	if s.GPU != nil {
		r.Accuracy = AccuracyOnGPU
	}
	return r.compare(s)
}

// compiledReport is the report of what XLA says that a step needs.
func compiledReport(s Sizes, m step.Memory, available *Available) *Report {
	r := &Report{Bytes: float64(m.Total()), Host: float64(m.Host), By: ByXLA, Available: available, Parts: largestFirst([]Part{
		{"parameters, and states of optimizers and quantizers", float64(m.State)},
		{"values inside a step: activations, gradients, quantized weights", float64(m.Temporary)},
		{"its code, and what else it reads and returns", float64(m.Other)},
	})}
	return r.compare(s)
}

func (r *Report) compare(s Sizes) *Report {
	r.sizes = s
	r.Fits = r.Bytes < addressable && (r.Available == nil || r.Bytes*(1-r.Accuracy) <= float64(r.Available.Bytes))
	if !r.Fits {
		r.Changes = s.remedies()
	}
	return r
}

// remedies lists what needs less memory than a run does.
func (s Sizes) remedies() (list []string) {
	if s.Forward {
		return []string{"fewer or shorter sequences at once"}
	}
	if s.Layers > 0 {
		list = append(list, "a smaller train.batch with a larger train.accumulate")
		if s.Recompute != architecture.RecomputeBlocks {
			list = append(list, `train.recompute = "blocks"`)
		}
		list = append(list, "a smaller model.context")
	}
	if s.Samples > 0 {
		list = append(list, "a smaller diagnostics.coordinates or diagnostics.window")
	}
	if s.Replicas > 1 && s.ParameterShards < 2 {
		list = append(list, fmt.Sprintf("device.shard = %q", device.ShardFull))
	}
	if s.GPU != nil && !s.Offload {
		list = append(list, fmt.Sprintf("device.offload = %q", device.OffloadStates))
	}
	if s.GPU != nil {
		list = append(list, "a larger device.memory_fraction, if nothing else uses the GPU")
	}
	return append(list, "a smaller model")
}

// Err returns a [*MemoryError] if the run does not fit.
func (r *Report) Err() error {
	if r.Fits {
		return nil
	}
	return &MemoryError{r}
}

// Says begins a sentence about what a run needs.
func (r *Report) Says() string {
	switch {
	case r.By == ByXLA:
		return fmt.Sprintf("%s of each GPU's memory by XLA", Bytes(r.Bytes))
	case r.sizes.GPU != nil:
		return fmt.Sprintf("about %s of each GPU's memory", Bytes(r.Bytes))
	default:
		return fmt.Sprintf("about %s of memory", Bytes(r.Bytes))
	}
}

// MemoryError says that there is not enough memory, and what needs less.
type MemoryError struct{ *Report }

func (e *MemoryError) Error() string {
	limit := "more than any machine has"
	if e.Available != nil {
		limit = e.Available.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "this needs %s, %s", e.Says(), limit)
	for _, p := range e.Parts {
		if p.Bytes >= 0.01*e.Bytes {
			fmt.Fprintf(&b, "\n  %s", p)
		}
	}
	fmt.Fprintf(&b, "\n%s", e.NeedsLess())
	return b.String()
}

// NeedsLess is a sentence about what needs less memory.
func (r *Report) NeedsLess() string {
	return "what needs less: " + strings.Join(r.sizes.remedies(), "; or ")
}

func checkHost(s Sizes, machine Available) error {
	if host := Estimate(s).Host; host > float64(machine.Bytes) {
		return fmt.Errorf("device.offload = %q keeps %s of states for each GPU in the machine's memory, and %s: want device.offload = %q, or a machine with more memory",
			device.OffloadStates, Bytes(host), machine, device.OffloadNone)
	}
	return nil
}

// String says how much memory is available, and what limits it.
func (a Available) String() string {
	return fmt.Sprintf("%s are there (%s)", Bytes(float64(a.Bytes)), a.Limit)
}

// Bytes formats a number of bytes for people.
func Bytes(n float64) string {
	const units = "kMGTPEZY"
	if n < 999.5 {
		return fmt.Sprintf("%.0f B", n)
	}
	at := 1
	for n /= 1000; n >= 999.5 && at < len(units); n /= 1000 { // 999.5 would be shown as 1e+03
		at++
	}
	return fmt.Sprintf("%.3g %cB", n, units[at-1])
}

// garbage is the share of the available memory that garbage may fill.
const garbage = 0.9

// limitHeap makes the garbage collector work harder when the memory of this process comes
// close to what is available. A limit that the user has set (GOMEMLIMIT) is kept.
func limitHeap(a Available) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(int64(garbage * float64(a.Bytes)))
	}
}
