package engine

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
)

// A Trial lets a device show whether it computes something right in one operation of its own, and whether that is faster
// than operations that its compiler fuses as it likes. Both ways return outputs of the same number and sizes, float32 or
// bfloat16.
type Trial struct {
	Inputs []Input
	// Prepare computes from the inputs what both ways read, for example numbers of 8 bits; nil: they read the inputs.
	Prepare BuildFunc
	// Fused is the one operation, Plain the many.
	Fused, Plain BuildFunc
	// Compare fails if the outputs of the two ways differ by more than rounding explains.
	Compare func(fused, plain [][]float32) error
}

// A Choice is how a device computes one kind of thing, and why.
type Choice struct {
	Kind  string `json:"kind"`
	Fused bool   `json:"fused"`
	// FusedMilliseconds and PlainMilliseconds are the medians of the trial, without what any call takes; 0 where nothing was
	// timed.
	FusedMilliseconds float64 `json:"fused_ms,omitempty"`
	PlainMilliseconds float64 `json:"plain_ms,omitempty"`
	// Reason says what failed; empty if the times decided.
	Reason string `json:"reason,omitempty"`
}

// String says what was chosen.
func (c Choice) String() string {
	way := "operations"
	if c.Fused {
		way = "fused"
	}
	switch {
	case c.Reason != "":
		return fmt.Sprintf("%s: %s, because %s", c.Kind, way, c.Reason)
	case c.PlainMilliseconds > 0:
		return fmt.Sprintf("%s: %s (fused %.3g ms, operations %.3g ms)", c.Kind, way, c.FusedMilliseconds, c.PlainMilliseconds)
	}
	return c.Kind + ": " + way
}

// ErrRefused is wrapped by the error of a trial whose fused way the device does not compile or run.
var ErrRefused = errors.New("the device does not have it")

// choiceKey is the key under which a device keeps the choice of a kind.
type choiceKey string

// ChooseFused reports whether the device is to compute a kind of thing fused. It finds out once, by a trial: the fused way
// has to be right, and on a GPU no slower than the other by more than a twentieth; it takes less memory. Where it fails, a
// warning says what is done instead (inPlace). A choice with which a run began ([Options.Choices]) is kept: its times are not
// taken again. On the CPU, times are not taken, so that bits do not depend on them.
func (d *Device) ChooseFused(kind, inPlace string, trial func() (Trial, error)) bool {
	return d.Once(choiceKey(kind), func() any {
		before, known := d.began(kind)
		if known && !before.Fused {
			return false
		}
		c := Choice{Kind: kind, Fused: true}
		t, err := trial()
		if err == nil {
			err = d.try(&c, t, d.kind != device.CPU && !known)
		}
		if err != nil {
			c.Fused, c.Reason = false, err.Error()
			d.Warn(inPlace, "kind", kind, "reason", err)
		}
		d.agree(&c)
		if known && c.Fused {
			c = before // with its times
		}
		d.choices.Store(kind, c)
		return c.Fused
	}).(bool)
}

// agree gives up the fused way where another process has refused it or found it slower: all of them run one program.
func (d *Device) agree(c *Choice) {
	p := d.options.Processes
	if p == nil {
		return
	}
	values, err := p.Agree("choice of "+c.Kind, Vote(c.Fused))
	switch refusing := slices.Index(values, 0); {
	case err != nil:
		c.Fused, c.Reason = false, err.Error() // the next step ends with the same error
	case c.Fused && refusing >= 0:
		c.Fused, c.Reason = false, fmt.Sprintf("process %d has refused it or found it slower", refusing)
	}
}

// began returns the choice of a kind with which the run began that the device was opened for.
func (d *Device) began(kind string) (c Choice, known bool) {
	i := slices.IndexFunc(d.options.Choices, func(c Choice) bool { return c.Kind == kind })
	if i < 0 {
		return c, false
	}
	return d.options.Choices[i], true
}

// Excludes reports whether the run that the device was opened for began without the fused way of a kind.
func (d *Device) Excludes(kind string) bool {
	c, known := d.began(kind)
	return known && !c.Fused
}

// Choices lists what was chosen so far, by kind, with what the device was opened with.
func (d *Device) Choices() []Choice {
	all := map[string]Choice{}
	for _, c := range d.options.Choices {
		all[c.Kind] = c
	}
	d.choices.Range(func(kind, c any) bool {
		all[kind.(string)] = c.(Choice)
		return true
	})
	var list []Choice
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[kind])
	}
	return list
}

// slower is how many times as long as the plain way the fused one may take, because it needs less memory.
const slower = 1.05

// try compares the two ways of a trial, and if timed is set, their times, and completes the choice.
func (d *Device) try(c *Choice, t Trial, timed bool) (err error) {
	var buffers []*Buffer
	defer func() { err = errors.Join(err, FinalizeAll(buffers...)) }()
	for _, in := range t.Inputs {
		b, err := Upload(d, in.Data, in.Shape.Dimensions...)
		if err != nil {
			return err
		}
		buffers = append(buffers, b)
	}
	inputs := buffers
	if t.Prepare != nil {
		e, err := d.Compile("inputs of a trial", specsOf(inputs), t.Prepare)
		if err != nil {
			return err
		}
		defer e.Close()
		if inputs, err = e.Run(inputs, nil); err != nil {
			return err
		}
		buffers = append(buffers, inputs...)
	}
	fused, fusedTime, err := d.attempt(c.Kind+", fused", inputs, t.Fused, timed)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	plain, plainTime, err := d.attempt(c.Kind+", as operations", inputs, t.Plain, timed)
	if err != nil {
		return err
	}
	if err := t.Compare(fused, plain); err != nil || !timed {
		return err
	}
	idle, ok := d.Once(choiceKey(""), func() any { return d.idleTime() }).(time.Duration)
	if !ok {
		return errors.New("a call that computes nothing fails")
	}
	milliseconds := func(of time.Duration) float64 { return max(of-idle, time.Microsecond).Seconds() * 1e3 }
	c.FusedMilliseconds, c.PlainMilliseconds = milliseconds(fusedTime), milliseconds(plainTime)
	c.Fused = c.FusedMilliseconds <= slower*c.PlainMilliseconds
	return nil
}

// specsOf are inputs i0, i1, … of the shapes of buffers.
func specsOf(buffers []*Buffer) (list []Spec) {
	for i, b := range buffers {
		list = append(list, Spec{Name: fmt.Sprintf("i%d", i), Shape: b.Shape()})
	}
	return list
}

// attempt computes outputs, and if timed is set, the median of the time of some calls after a first one.
func (d *Device) attempt(name string, inputs []*Buffer, build BuildFunc, timed bool) (outputs [][]float32, median time.Duration, err error) {
	const calls = 9
	e, err := d.Compile("trial of "+name, specsOf(inputs), build)
	if err != nil {
		return nil, 0, err
	}
	defer e.Close()
	out, err := e.Run(inputs, nil)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, FinalizeAll(out...)) }()
	for _, b := range out {
		values, err := downloadFloats(b)
		if err != nil {
			return nil, 0, err
		}
		outputs = append(outputs, values)
	}
	if !timed {
		return outputs, 0, nil
	}
	median, err = e.Median(inputs, calls)
	return outputs, median, err
}

// idleTime is the time of a call that computes next to nothing, nil if that fails.
func (d *Device) idleTime() any {
	x, err := Upload(d, []float32{0}, 1)
	if err != nil {
		return nil
	}
	defer x.Finalize()
	_, median, err := d.attempt("nothing", []*Buffer{x}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Neg(in[0])}
	}, true)
	if err != nil {
		return nil
	}
	return median
}

// Distance is ‖a − b‖/‖b‖, for what compares the outputs of a [Trial].
func Distance(a, b []float32) float64 {
	difference, norm := 0.0, 0.0
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		difference, norm = difference+d*d, norm+float64(b[i])*float64(b[i])
	}
	return math.Sqrt(difference / norm)
}

// downloadFloats downloads float32 or bfloat16.
func downloadFloats(b *Buffer) ([]float32, error) {
	if b.shape.DType != dtypes.BFloat16 {
		return Download[float32](b)
	}
	short, err := Download[bfloat16.BFloat16](b)
	values := make([]float32, len(short))
	for i, x := range short {
		values[i] = x.Float32()
	}
	return values, err
}
