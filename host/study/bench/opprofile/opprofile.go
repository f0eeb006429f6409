// Package opprofile determines where the processor time of training steps goes, by
// executable of the step (quantize, gradient, finish, update) and by kind of operation.
// It reads the samples of Go's CPU profiler. It knows the names of the engine's and the
// runtime's functions, but nothing about what is measured.
package opprofile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Kinds of operations, as they are named in reports.
const (
	Products    = "matrix products"
	Attention   = "attention" // in blocks on the CPU, with its products
	Losses      = "losses"    // of logits in one pass on the CPU
	RowPrograms = "programs over rows"
	Transposes  = "transposes"
	Elementwise = "elementwise"
	Reductions  = "reductions"
	Activations = "activations"
	Moves       = "slices, gathers and copies"
	Host        = "programs run in the host" // refresh programs: factorizations
	Garbage     = "garbage collection"
	Other       = "other"
)

// rules tell the kind of a function by a part of its name. The first frame from the
// leaf that a rule knows decides.
var rules = []struct{ part, kind string }{
	{"sdk/program/reference", Host},
	{"gobackend/dot", Products},
	// The products of attention are its own: it stands nearer to the root than the loops and products that it calls.
	{"host/compute/matmul", Products}, {"host/compute/cpu", RowPrograms}, {"onepass.Logits", Losses}, {"host/compute/onepass", RowPrograms},
	{"ops.transpose", Transposes}, {"ops.execTranspose", Transposes}, {"ops.ExecuteTranspose", Transposes},
	{"ops.execReduce", Reductions}, {"ops.dispatchReduce", Reductions},
	{"gobackend/activations", Activations}, {"gobackend/fusedops", Activations},
	{"ops.execSlice", Moves}, {"ops.execConcat", Moves}, {"ops.execGather", Moves}, {"ops.execScatter", Moves},
	{"ops.execBroadcast", Moves}, {"ops.execReshape", Moves}, {"ops.execIdentity", Moves}, {"gobackend.CopyFlat", Moves},
	{"gobackend/ops", Elementwise}, {"compute/support/simdmath", Elementwise},
	{"runtime.gc", Garbage}, {"runtime.bgsweep", Garbage}, {"runtime.mallocgc", Garbage},
}

// Row is the processor time of one kind of operation in one executable.
type Row struct {
	Executable string  `json:"executable"` // "" for time outside executables
	Kind       string  `json:"kind"`
	Seconds    float64 `json:"seconds"`
}

// Measure profiles the process while f runs. Only one profile can be taken at a time.
func Measure(ctx context.Context, f func(context.Context) error) ([]Row, error) {
	var text bytes.Buffer
	if err := pprof.StartCPUProfile(&text); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	err := f(ctx)
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	p, err := profile.Parse(&text)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return Rows(p)
}

// Rows adds up the samples of a CPU profile and returns the rows, the largest first.
func Rows(p *profile.Profile) ([]Row, error) {
	at := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == "cpu" && t.Unit == "nanoseconds" })
	if at < 0 {
		return nil, fmt.Errorf("profile: no processor time in nanoseconds among its samples")
	}
	type key struct{ executable, kind string }
	sums := map[key]int64{}
	for _, s := range p.Sample {
		k := key{kind: kindOf(s)}
		if l := s.Label[engine.ProfileLabel]; len(l) > 0 {
			k.executable = l[0]
		}
		sums[k] += s.Value[at]
	}
	var rows []Row
	for k, v := range sums {
		rows = append(rows, Row{k.executable, k.kind, float64(v) / 1e9})
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Executable, b.Executable), cmp.Compare(a.Kind, b.Kind))
	})
	return rows, nil
}

// kindOf is the kind of a sample.
func kindOf(s *profile.Sample) string {
	var names []string
	for _, location := range s.Location {
		for _, line := range location.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return kindOfStack(names)
}

// KindOfCaller is the kind of what its caller does: that to which a sample of it would be counted.
func KindOfCaller() string {
	const deep = 64
	var at [deep]uintptr
	frames := runtime.CallersFrames(at[:runtime.Callers(2, at[:])])
	var names []string
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		names = append(names, f.Function)
	}
	return kindOfStack(names)
}

// kindOfStack walks from the leaf, the first name, to the root.
func kindOfStack(names []string) string {
	if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "host/compute/attention") }) {
		return Attention
	}
	for _, name := range names {
		for _, r := range rules {
			if strings.Contains(name, r.part) {
				return r.kind
			}
		}
	}
	return Other
}

// By adds up the rows for which of returns the same, and returns the sums, the largest
// first.
func By(rows []Row, of func(Row) string) []Row {
	sums := map[string]float64{}
	for _, r := range rows {
		sums[of(r)] += r.Seconds
	}
	var out []Row
	for name, s := range sums {
		out = append(out, Row{Kind: name, Seconds: s})
	}
	slices.SortFunc(out, func(a, b Row) int { return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Kind, b.Kind)) })
	return out
}
