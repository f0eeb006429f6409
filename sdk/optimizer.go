package sdk

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Optimizer writes the update direction for a parameter tensor as two pure
// functions: state in, state out.
//
// A method refuses what it does not support with [Refuse]; any other error counts as a
// mistake in the plugin.
type Optimizer interface {
	// Describe names the plugin and declares its parameters.
	Describe() Description
	// Init builds the initial state for a tensor with the initial value x.
	Init(b *program.Builder, x program.Value, t Tensor) (State, error)
	// Update builds the direction u and the next state. The host applies
	// x ← x − α·u with its learning rate α. u has the shape of the tensor; the
	// next state has the names and shapes of the state.
	Update(b *program.Builder, in UpdateInput, t Tensor) (u program.Value, next State, err error)
}

// Selective is an optimizer that is meant for some tensors only, as Muon is for the
// matrices of hidden layers. The host gives the others to a second optimizer,
// which the table [optimizer.rest] of the configuration names.
type Selective interface {
	// Accepts reports whether the optimizer is meant for tensors like t. It may
	// depend on role and shape.
	Accepts(t Tensor) bool
}

// TensorRole says what part a parameter plays in the model.
type TensorRole string

// The roles of parameter tensors.
const (
	TensorMatrix    TensorRole = "matrix"    // weight of a linear layer inside a block
	TensorVector    TensorRole = "vector"    // norm weight, bias
	TensorEmbedding TensorRole = "embedding" // token embedding
	TensorHead      TensorRole = "head"      // output head
)

// Tensor is a trained parameter of the model.
type Tensor struct {
	Name  string
	Role  TensorRole
	Shape []int
	// Parts lists the matrices that a fused weight holds one below the other, such as
	// those of queries, keys and values, from the top down. Together they have all of its
	// rows. Parts is empty for a weight that is one matrix.
	Parts []Part
	// Values holds the declared parameters of the optimizer, checked and complete.
	Values
}

// Part is one of the matrices that a fused weight holds.
type Part struct {
	Name  string // such as q, k or v
	First int    // its first row
	Rows  int
}

// State is an optimizer's memory for one tensor, or the trained parameters of a
// quantizer's site: float values by name, for example the moments m and v.
type State map[string]program.Value

// UpdateInput is what an update may read.
type UpdateInput struct {
	// X is the parameter before the step. Weight decay has already been applied, unless
	// the run applies it last.
	X program.Value
	// Gradient has the tensor's shape; it is already clipped.
	Gradient program.Value
	// Step is the number t of this update as a scalar float, counted from 1.
	Step program.Value
	// State is what the previous update, or Init, returned.
	State State
	// The inputs below are there for the few algorithms that need them. A program that does not
	// use one does not have it.

	// Rate is the rate α_t of the schedule times the factor of the tensor's group, a scalar float:
	// what the host multiplies u by, unless the optimizer is a [Pacer]. It may be 0.
	Rate program.Value
	// Steps is the number of steps of the whole run, as a scalar float. It grows when a run is
	// extended.
	Steps program.Value
	// Loss is the loss of this step, as a scalar float: what training minimizes, as a mean over
	// the step's micro-batches.
	Loss program.Value
	// Noise is a key for [program.Builder.RandomBits], a uint[2]: another one for each tensor and
	// in each step, and the same in all methods of one step.
	Noise program.Value
	// Global has the sums of what a [Collector] collects, by name; nil in Collect.
	Global State
	// Probed and Probing are for the Update of a [Prober] or a [Sampler]. Where a probe is due, Probing is 1,
	// and Probed is the second gradient, of the tensor's shape: that of a Prober at the offset point, scaled by
	// the factor of the clipping of Gradient, or that of a Sampler. In other updates Probing, a scalar float,
	// is 0, and Probed is Gradient.
	Probed, Probing program.Value
}

// Names of the inputs and outputs of an optimizer's programs; a state tensor s
// appears as StatePrefix + s.
const (
	InputGradient   = "gradient"
	InputStep       = "step"
	InputRate       = "rate"
	InputSteps      = "steps"
	InputLoss       = "loss"
	InputProbed     = "probed"
	InputProbing    = "probing"
	OutputOffset    = "offset"
	OutputDirection = "direction"
	OutputRate      = "own_rate"
	OutputWeights   = "weights"
	StatePrefix     = "state."
	GlobalPrefix    = "global." // of sums over tensors, as outputs of collect and as inputs of the others
)

// Pacer is an optimizer with a rate of its own, such as Adafactor, whose rate follows the size
// of the weights. The host uses it wherever it would use the schedule's: for the direction, for
// the weight decay and for the correction by CAGE.
type Pacer interface {
	// Rate builds the rate α of this update, a scalar float, at least 0: the host applies
	// x ← x − α·u. in.X is the parameter before weight decay, and in.State the state before
	// Observe; what Observe or Refresh changes cannot be read. in.Rate is the schedule's rate.
	// α should be 0 where it is 0, so that warmup, the end of a schedule and the groups of a
	// configuration have their effect.
	Rate(b *program.Builder, in UpdateInput, t Tensor) (program.Value, error)
}

// Collector is an optimizer that needs to know something of all its tensors together, such as the
// norm of the whole gradient or of the way that all of them have come (Prodigy, D-Adaptation).
type Collector interface {
	// Collect builds scalar floats of one tensor, by name. The host adds up those of each name over
	// all tensors that the optimizer has by the same table of the configuration. The other
	// programs of the same step find the sums in in.Global. As in Rate, in.X is the parameter
	// before weight decay, and in.State the state before Observe.
	Collect(b *program.Builder, in UpdateInput, t Tensor) (State, error)
}

// Prober is an optimizer that takes a second gradient, at another point and with the same batch, as
// sharpness-aware minimization does (SAM), or for the product of the Hessian and a vector, as a
// difference of two gradients (Sophia-H, AdaHessian).
type Prober interface {
	// Probe builds the offset p of one tensor from x, where the gradient was taken. If a probe is due, the
	// host takes the gradient at x + p, with all tensors moved at once, before Update. The model at that
	// point is quantized as it is at x, with the same noise; it is then forgotten. As in Collect, in.X is
	// the parameter before weight decay, and in.State the state before Observe.
	Probe(b *program.Builder, in UpdateInput, t Tensor) (program.Value, error)
	// ProbeAt says at which updates of the tensor a probe is due.
	ProbeAt(t Tensor) Due
}

// Sampler is an optimizer that takes a second gradient at x and with the same batch, but with labels that the
// host draws from the predictions of the model, as Sophia-G does. There is one second gradient: for a tensor for which
// this one is ever due, an offset of a [Prober] must never be.
type Sampler interface {
	// SampleAt says at which updates of the tensor such a gradient is due. Update has it as in.Probed, times √n, where
	// n is the number of labels, and not clipped: so the mean of its square is the diagonal of the Gauss-Newton
	// matrix of the loss (Liu et al. 2023, arXiv 2305.14342, §2.3). Where labels have weights, n is (Σw)²/Σw². The model is
	// quantized as for Gradient, with the same noise. With a teacher, too, labels are drawn from the student.
	SampleAt(t Tensor) Due
}

// Averaged is an optimizer whose result is another point than the one at which it takes
// gradients, such as an average of the path (schedule-free methods, EMA, SWA).
type Averaged interface {
	// Evaluate builds the tensor to evaluate the model with, and to export, from x, where
	// training is, and the state after an update. Before the first update it must be x.
	Evaluate(b *program.Builder, x program.Value, state State, t Tensor) (program.Value, error)
}

// Compact is an optimizer that keeps parts of its state in fewer bits than float32, as 8-bit Adam
// does. Its programs still take and return floats.
type Compact interface {
	// Storage says how state tensors of t are kept between programs, by name. Those that it does
	// not name are kept as float32. An optimizer with refreshes keeps all of its state so.
	Storage(t Tensor) map[string]Storage
}

// Refresher is an optimizer with preconditioners: parts of its state that need
// factorizations, which are too costly for every update. The host runs a refresh program
// every few updates, and only there are factorizations and sorting possible
// (program.OpQR, OpEighValues, OpEighVectors, OpSortColumns).
//
// Update t of a tensor runs Observe; then Refresh, if one is due at t; then Update. Each
// sees the state as the one before it left it.
type Refresher interface {
	// Observe builds the statistics of this update's gradient that a refresh reads. It
	// returns only the state tensors that it changes, which may be none. It is part of
	// every update, even if no refresh is ever due.
	Observe(b *program.Builder, in UpdateInput, t Tensor) (State, error)
	// Refresh builds the renewed state tensors and returns only those, at least one.
	// The program of the first refresh may differ from that of the others; first
	// says whether it is the one that is asked for.
	Refresh(b *program.Builder, in RefreshInput, first bool, t Tensor) (State, error)
	// RefreshAt says at which updates of the tensor a refresh is due.
	RefreshAt(t Tensor) Due
}

// RefreshInput is what a refresh may read.
type RefreshInput struct {
	// Step is the number t of the update that follows, a scalar float.
	Step program.Value
	// State is the state after Observe.
	State State
}

// Due says at which updates t = 1, 2, … something happens: at First, then at those of Next,
// Next + Every, Next + 2·Every, … that come after First. If First is 0, it never happens,
// and Next and Every must be 0; if Every is 0, it happens only once, and Next must be 0.
type Due struct{ First, Next, Every int }

// At reports whether it is due at update t, and whether for the first time.
func (d Due) At(t int) (due, first bool) {
	switch {
	case d.First <= 0 || t < d.First:
		return false, false
	case t == d.First:
		return true, true
	case d.Every <= 0 || t < d.Next:
		return false, false
	}
	return (t-d.Next)%d.Every == 0, false
}

// check says what is wrong with d.
func (d Due) check() error {
	switch {
	case min(d.First, d.Next, d.Every) < 0 || max(d.First, d.Next, d.Every) > math.MaxInt32:
		return fmt.Errorf("%+v: each must be 0 to %d", d, math.MaxInt32)
	case d.First == 0 && (d.Next != 0 || d.Every != 0):
		return fmt.Errorf("%+v: First = 0 means never, so Next and Every must be 0", d)
	case d.Every == 0 && d.Next != 0:
		return fmt.Errorf("%+v: Every = 0 means only once, so Next must be 0", d)
	}
	return nil
}

// OptimizerProgram is an optimizer's answer for one tensor in the form that
// crosses the process boundary.
type OptimizerProgram struct {
	// Accepts is false when a [Selective] optimizer is not meant for the tensor;
	// there are no programs then.
	Accepts bool
	// Opaque says that the optimizer is an [OpaqueOptimizer]: there is a state that starts at zero,
	// and no program.
	Opaque bool
	// Init maps x to the state; nil exactly when there is no state.
	Init *program.Program
	// Update maps x, gradient, step, the state, and those of the other inputs that it uses
	// to direction and the next state.
	Update *program.Program
	// State lists the state tensors in the order of their names.
	State []StateTensor
	// Observe takes what Update takes and returns some of the state; the rest
	// stays as it is. It is nil when nothing is observed.
	Observe *program.Program
	// FirstRefresh and Refresh map step and the state to some of the state. Each
	// is nil exactly when Due never asks for it.
	FirstRefresh, Refresh *program.Program
	// Due says at which updates a refresh precedes Update.
	Due Due
	// Rate takes what Update takes and returns the optimizer's own rate; nil means that the
	// schedule's is used.
	Rate *program.Program
	// Evaluate maps x and the state to the weights to evaluate with; nil means x.
	Evaluate *program.Program
	// Probe takes what Update takes, without a probed gradient, and returns the offset at which that is taken
	// when ProbeDue says so. It is nil exactly when no probe is ever due, or Sampled is true.
	Probe    *program.Program
	ProbeDue Due
	// Sampled says that the second gradient is taken at x, with labels drawn from the model: see [Sampler].
	Sampled bool
	// Collect takes what Update takes, without sums, and returns scalars that are summed over tensors; nil
	// means that there are none.
	Collect *program.Program
}

// Programs yields the programs that are present, with their names: init, update, observe,
// first_refresh, refresh, rate, evaluate, collect, probe.
func (o OptimizerProgram) Programs() iter.Seq2[string, *program.Program] {
	return present([]named{{"init", o.Init}, {"update", o.Update}, {"observe", o.Observe}, {"first_refresh", o.FirstRefresh}, {"refresh", o.Refresh},
		{"rate", o.Rate}, {"evaluate", o.Evaluate}, {"collect", o.Collect}, {"probe", o.Probe}})
}

// Reads reports whether a program of an update has the named input, such as [InputLoss].
func (o OptimizerProgram) Reads(input string) bool {
	return slices.ContainsFunc([]*program.Program{o.Update, o.Observe, o.Rate, o.Collect, o.Probe}, func(p *program.Program) bool { return p != nil && p.Input(input) >= 0 })
}

// Check verifies the signatures of valid programs for a tensor of the given shape,
// that there are exactly the refresh programs that Due asks for, and that no other
// program factorizes.
func (o OptimizerProgram) Check(shape []int) error {
	if !o.Accepts {
		for name := range o.Programs() {
			return fmt.Errorf("the tensor is not accepted, but there is a program %s for it", name)
		}
		return nil
	}
	if o.Opaque {
		return o.checkOpaque()
	}
	if err := checkList("state tensor", o.State); err != nil {
		return err
	}
	if err := o.ProbeDue.check(); err != nil {
		return fmt.Errorf("probes are due at %w", err)
	}
	if o.Sampled && o.ProbeDue.First == 0 {
		return errors.New("labels are to be drawn from the model, but never")
	}
	if o.Due.First > 0 {
		if err := checkFloat32(o.State, "what a refresh may read"); err != nil {
			return err
		}
	}
	if err := o.Due.check(); err != nil {
		return fmt.Errorf("refreshes are due at %w", err)
	}
	tensor := program.FloatType(shape...)
	scalar := program.FloatType()
	step := program.Input{Name: InputStep, Type: scalar}
	state := ports(StatePrefix, o.State)
	inputs := append([]program.Input{{Name: InputX, Type: tensor}, {Name: InputGradient, Type: tensor}, step}, state...)
	collected, err := o.Collected()
	if err != nil {
		return err
	}
	optional := optionalInputs(collected...)
	probed := optional
	if o.ProbeDue.First > 0 {
		probed = slices.Concat(optional, probeInputs(shape))
	}
	next := append([]program.Input{{Name: OutputDirection, Type: tensor}}, state...)
	refresh := append([]program.Input{step}, state...)
	for _, c := range []struct {
		p      *program.Program
		wanted bool
		signature
	}{
		{o.Init, len(state) > 0, signature{name: "init", inputs: inputs[:1], outputs: state, when: "there are state tensors"}},
		{o.Update, true, signature{name: "update", inputs: inputs, optional: probed, outputs: next}},
		{o.Observe, o.Observe != nil, signature{name: "observe", inputs: inputs, optional: optional, outputs: state, some: true}},
		{o.FirstRefresh, o.Due.First > 0, signature{name: "first refresh", inputs: refresh, outputs: state, some: true, factorizes: true, when: "one is due"}},
		{o.Refresh, o.Due.Every > 0, signature{name: "refresh", inputs: refresh, outputs: state, some: true, factorizes: true, when: "more than one is due"}},
		{o.Rate, o.Rate != nil, signature{name: "rate", inputs: inputs, optional: optional, outputs: []program.Input{{Name: OutputRate, Type: scalar}}}},
		{o.Evaluate, o.Evaluate != nil, signature{name: "evaluate", inputs: append(slices.Clone(inputs[:1]), state...), outputs: []program.Input{{Name: OutputWeights, Type: tensor}}}},
		{o.Probe, o.ProbeDue.First > 0 && !o.Sampled, signature{name: "probe", inputs: inputs, optional: optional, outputs: []program.Input{{Name: OutputOffset, Type: tensor}}, when: "one is due and labels are not drawn"}},
		{o.Collect, o.Collect != nil, signature{name: "collect", inputs: inputs, optional: optionalInputs(), outputs: optional[len(optionalInputs()):]}},
	} {
		if err := c.signature.check(c.p, c.wanted); err != nil {
			return err
		}
	}
	return o.checkRate()
}

// Collected lists the names of what is collected, in their order. It is an error if the outputs of
// Collect do not have the names that they must have.
func (o OptimizerProgram) Collected() (names []string, err error) {
	if o.Collect == nil {
		return nil, nil
	}
	for _, out := range o.Collect.Outputs {
		name, ok := strings.CutPrefix(out.Name, GlobalPrefix)
		if !ok || name == "" || len(names) > 0 && names[len(names)-1] >= name {
			return nil, fmt.Errorf("the collect program returns %s: it must return scalars named %sNAME, in the order of their names", out.Name, GlobalPrefix)
		}
		names = append(names, name)
	}
	return names, nil
}

// optionalInputs are the inputs that the programs of an update have only where they use them.
// collected are the names of sums.
func optionalInputs(collected ...string) []program.Input {
	scalar := program.FloatType()
	list := []program.Input{{Name: InputRate, Type: scalar}, {Name: InputSteps, Type: scalar}, {Name: InputLoss, Type: scalar}, {Name: InputNoise, Type: keyType}}
	for _, name := range collected {
		list = append(list, program.Input{Name: GlobalPrefix + name, Type: scalar})
	}
	return list
}

// probeInputs are those that an update has only if a probe may be due and it uses them.
func probeInputs(shape []int) []program.Input {
	return []program.Input{{Name: InputProbed, Type: program.FloatType(shape...)}, {Name: InputProbing, Type: program.FloatType()}}
}

// checkRate verifies that the rate follows from what is known before the weight decay, which
// needs it: Observe and the refreshes come later.
func (o OptimizerProgram) checkRate() error {
	if o.Rate == nil {
		return nil
	}
	needed := transform.Needs(o.Rate, o.Rate.Outputs)
	for _, p := range []*program.Program{o.Observe, o.FirstRefresh, o.Refresh} {
		if p == nil {
			continue
		}
		for _, out := range p.Outputs {
			if needed[o.Rate.Input(out.Name)] {
				return fmt.Errorf("the rate program reads %s, which is changed before the update: the rate is needed before that, for the weight decay", out.Name)
			}
		}
	}
	return nil
}
