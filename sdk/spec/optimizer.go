package spec

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

// Names of the inputs and outputs of an optimizer's programs; a state tensor s
// is named StatePrefix + s.
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
	GlobalPrefix    = "global." // sums over tensors: outputs of collect, inputs of the other programs
)

// Due is a schedule of updates t = 1, 2, …: First, then those of Next, Next + Every,
// Next + 2·Every, … that are greater than First. If First is 0, there are none, and Next and
// Every must be 0; if Every is 0, there is only First, and Next must be 0.
type Due struct{ First, Next, Every int }

// At reports whether update t is in the schedule, and whether it is the first one.
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

// Check returns an error unless d is valid.
func (d Due) Check() error {
	switch {
	case min(d.First, d.Next, d.Every) < 0 || max(d.First, d.Next, d.Every) > math.MaxInt32:
		return fmt.Errorf("%+v, want numbers from 0 to %d", d, math.MaxInt32)
	case d.First == 0 && (d.Next != 0 || d.Every != 0):
		return fmt.Errorf("%+v: First = 0 means never, so Next and Every must be 0", d)
	case d.Every == 0 && d.Next != 0:
		return fmt.Errorf("%+v: Every = 0 means only once, so Next must be 0", d)
	}
	return nil
}

// Optimizer is an optimizer's answer for one tensor, as it is sent from the plugin to the host.
type Optimizer struct {
	// Accepts is false when a Selective optimizer is not meant for the tensor;
	// there are no programs then.
	Accepts bool
	// Opaque is set for an OpaqueOptimizer: it has state, which starts at zero, but no programs.
	Opaque bool
	// Init maps x to the state; nil exactly when there is no state.
	Init *program.Program
	// Update maps the inputs (x, gradient, step, the state, and the optional inputs that it
	// uses) to the outputs (direction and the next state).
	Update *program.Program
	// State lists the state tensors, sorted by name.
	State []Tensor
	// Observe has the inputs of Update and returns a subset of the state; the rest is
	// unchanged. It is nil if there is nothing to observe.
	Observe *program.Program
	// FirstRefresh and Refresh map step, state and, if used, gradient to part of the state.
	// Each is nil iff never due.
	FirstRefresh, Refresh *program.Program
	// Due is the schedule of refreshes, each of which precedes the Update.
	Due Due
	// Rate has the inputs of Update and returns the optimizer's own learning rate; nil means the
	// rate of the schedule.
	Rate *program.Program
	// Evaluate maps x and the state to the weights to evaluate with; nil means x.
	Evaluate *program.Program
	// Probe has the inputs of Update, except the probed gradient, and returns the offset from x at
	// which the second gradient is taken, in the updates of ProbeDue. It is nil exactly when no
	// probe is ever due, or Sampled is true.
	Probe    *program.Program
	ProbeDue Due
	// Sampled means that the second gradient is taken at x, with labels that the host draws from the
	// predictions of the model, and is multiplied by the square root of the number of labels.
	Sampled bool
	// Rounded is the type to which the tensor itself is rounded after each update, stochastically:
	// StoreBFloat16, or StoreFloat32 for no rounding.
	Rounded Storage
	// Collect has the inputs of Update, except the sums, and returns scalars that are summed over
	// tensors; nil means that there are none.
	Collect *program.Program
}

// Programs yields the programs that are not nil, with their names: init, update, observe,
// first_refresh, refresh, rate, evaluate, collect, probe.
func (o Optimizer) Programs() iter.Seq2[string, *program.Program] {
	return present([]named{{"init", o.Init}, {"update", o.Update}, {"observe", o.Observe},
		{"first_refresh", o.FirstRefresh}, {"refresh", o.Refresh}, {"rate", o.Rate},
		{"evaluate", o.Evaluate}, {"collect", o.Collect}, {"probe", o.Probe}})
}

// HasInput reports whether a program of an update has the named input, such as [InputLoss].
func (o Optimizer) HasInput(input string) bool {
	return haveInput(input, o.Update, o.Observe, o.Rate, o.Collect, o.Probe)
}

// RefreshesReadGradient reports whether a refresh takes the gradient of its update.
func (o Optimizer) RefreshesReadGradient() bool {
	return haveInput(InputGradient, o.FirstRefresh, o.Refresh)
}

// Check verifies the signatures of valid programs for a tensor of the given shape, that there are
// exactly the refresh programs that Due requires, and that no other program contains
// factorizations.
func (o Optimizer) Check(shape []int) error {
	if !o.Accepts {
		for name := range o.Programs() {
			return fmt.Errorf("got program %s for a tensor that is not accepted", name)
		}
		return nil
	}
	if o.Opaque {
		for name := range o.Programs() {
			return fmt.Errorf("got program %s, but an opaque optimizer has none", name)
		}
		if o.Due != (Due{}) || o.ProbeDue != (Due{}) || o.Sampled || o.Rounded != StoreFloat32 {
			return errors.New("an opaque optimizer must have no refreshes, probes or rounding")
		}
		return listRules{what: "state tensor", float32: "the state of an opaque optimizer"}.check(o.State)
	}
	if o.Rounded != StoreFloat32 && o.Rounded != StoreBFloat16 {
		return fmt.Errorf("the tensor is rounded to %q, want bfloat16 or nothing", o.Rounded)
	}
	rules := listRules{what: "state tensor"}
	if o.Due.First > 0 {
		rules.float32 = "what a refresh may read"
	}
	if err := rules.check(o.State); err != nil {
		return err
	}
	if err := o.ProbeDue.Check(); err != nil {
		return fmt.Errorf("probes are due at %w", err)
	}
	if o.Sampled && o.ProbeDue.First == 0 {
		return errors.New("the optimizer samples labels, but no sample is ever due")
	}
	if err := o.Due.Check(); err != nil {
		return fmt.Errorf("refreshes are due at %w", err)
	}
	x, step := float(InputX, shape...), float(InputStep)
	state := ports(StatePrefix, o.State)
	inputs := append([]program.Input{x, float(InputGradient, shape...), step}, state...)
	collected, err := o.Collected()
	if err != nil {
		return err
	}
	optional := UpdateInputs(collected...)
	probed := optional
	if o.ProbeDue.First > 0 {
		probed = slices.Concat(optional, ProbeInputs(shape))
	}
	refresh, gradient := append([]program.Input{step}, state...), inputs[1:2]
	if err := checkAll([]signature{
		{name: "init", program: o.Init, wanted: len(state) > 0, inputs: inputs[:1], outputs: state,
			when: "there are state tensors"},
		{name: "update", program: o.Update, wanted: true, inputs: inputs, optional: probed,
			outputs: append([]program.Input{float(OutputDirection, shape...)}, state...)},
		{name: "observe", program: o.Observe, wanted: o.Observe != nil, inputs: inputs,
			optional: optional, outputs: state, some: true},
		{name: "first refresh", program: o.FirstRefresh, wanted: o.Due.First > 0, inputs: refresh,
			optional: gradient, outputs: state, some: true, factorizes: true, when: "one is due"},
		{name: "refresh", program: o.Refresh, wanted: o.Due.Every > 0, inputs: refresh,
			optional: gradient, outputs: state, some: true, factorizes: true, when: "more than one is due"},
		{name: "rate", program: o.Rate, wanted: o.Rate != nil, inputs: inputs,
			optional: optional, outputs: []program.Input{float(OutputRate)}},
		{name: "evaluate", program: o.Evaluate, wanted: o.Evaluate != nil,
			inputs:  append([]program.Input{x}, state...),
			outputs: []program.Input{float(OutputWeights, shape...)}},
		{name: "probe", program: o.Probe, wanted: o.ProbeDue.First > 0 && !o.Sampled, inputs: inputs,
			optional: optional, outputs: []program.Input{float(OutputOffset, shape...)},
			when: "one is due and labels are not drawn"},
		{name: "collect", program: o.Collect, wanted: o.Collect != nil, inputs: inputs,
			optional: UpdateInputs(), outputs: optional[len(UpdateInputs()):]},
	}); err != nil {
		return err
	}
	// Rate runs before Observe and the refreshes, because weight decay needs the rate.
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
				return fmt.Errorf("the rate program reads %s, which is changed before the update: "+
					"the rate is needed before that, for the weight decay", out.Name)
			}
		}
	}
	return nil
}

// Collected lists the names of the collected sums, sorted. It is an error if the outputs of Collect
// are not named GlobalPrefix + name, in this order.
func (o Optimizer) Collected() (names []string, err error) {
	if o.Collect == nil {
		return nil, nil
	}
	for _, out := range o.Collect.Outputs {
		name, ok := strings.CutPrefix(out.Name, GlobalPrefix)
		if !ok || name == "" || len(names) > 0 && names[len(names)-1] >= name {
			return nil, fmt.Errorf("the collect program returns %s: it must return scalars named %sNAME, "+
				"in the order of their names", out.Name, GlobalPrefix)
		}
		names = append(names, name)
	}
	return names, nil
}

// UpdateInputs returns the optional inputs of an update's programs, each of which a program has
// only if it uses it. collected lists the names of the sums.
func UpdateInputs(collected ...string) []program.Input {
	list := []program.Input{float(InputRate), float(InputSteps), float(InputLoss),
		{Name: InputNoise, Type: keyType}}
	for _, name := range collected {
		list = append(list, float(GlobalPrefix+name))
	}
	return list
}

// ProbeInputs returns the optional inputs of Update for a probe, if one is ever due.
func ProbeInputs(shape []int) []program.Input {
	return []program.Input{float(InputProbed, shape...), float(InputProbing)}
}
