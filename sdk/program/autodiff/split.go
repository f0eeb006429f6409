package autodiff

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Partition is a program together with its gradient, cut between the forward and the backward pass.
type Partition struct {
	// Forward takes the inputs of the original program and returns the requested outputs,
	// in that order, followed by the residuals that are neither inputs nor requested
	// outputs, named r.0, r.1, …
	Forward *program.Program
	// Backward takes the residuals, in the order of Residuals, and then the cotangent d.<output>;
	// it returns d.<input> for each input in wrt. With [SplitBy], the cotangent and the outputs are
	// named as in the given backward program.
	Backward *program.Program
	// Residuals lists the values that Backward needs from the forward pass.
	Residuals []Residual
}

// Residual is a forward value kept for the backward pass.
type Residual struct {
	// Name is the name of the Backward input, and of its source.
	Name string
	// Input is true if the source is the original program's input with this name (in SplitBy, the
	// backward program's). Otherwise the source is Forward's output with this name.
	Input bool
	Type  program.Type
}

// Split differentiates p, which must be valid, as [VJP] does and cuts the result in two. outputs
// lists the outputs of the forward pass; output, the differentiated one, need not be among them.
//
// The residuals are the smallest set, in bytes, of forward values from which the backward pass can
// be computed without repeating work. Constants, and reshapes, broadcasts, slices and transposes of
// residuals, are recomputed; values that only the backward pass needs are computed in the pass that
// makes the residuals smaller. Neither program contains stop_gradient, so neither may be
// differentiated again.
func Split(p *program.Program, outputs []string, output string, wrt ...string) (*Partition, error) {
	t, err := newTape(p, []string{output}, wrt, "")
	if err != nil {
		return nil, err
	}
	t.values = replay(t.b, p, t.values, true)
	if err := writeOutputs(t.b, p, t.values, outputs); err != nil {
		return nil, err
	}
	if err := t.reverse(); err != nil {
		return nil, err
	}
	return splitJoint(t.b, p, outputs)
}

// SplitBy is [Split] for a program with a given backward pass, instead of the gradient of one of
// its outputs. backward must be valid. Its inputs are a cotangent, inputs of p (matched by name),
// and possibly others; its outputs are those of Partition.Backward.
func SplitBy(
	p *program.Program, outputs []string, backward *program.Program, cotangent string,
) (*Partition, error) {
	if backward.Input(cotangent) < 0 || p.Input(cotangent) >= 0 {
		return nil, fmt.Errorf("the cotangent %q must be an input of %q, and not of %q",
			cotangent, backward.Name, p.Name)
	}
	b := program.NewSimplifier(p.Name)
	inputs := transform.Inputs(b, p, nil)[:len(p.Inputs)]
	given := make([]program.Value, len(backward.Inputs))
	for i, in := range backward.Inputs {
		switch j := p.Input(in.Name); {
		case j < 0 && in.Name != cotangent:
			given[i] = b.Input(in.Name, in.Type)
		case j >= 0 && !p.Inputs[j].Type.Equal(in.Type):
			return nil, fmt.Errorf("program %q: input %q is %s, but %s in program %q",
				backward.Name, in.Name, in.Type, p.Inputs[j].Type, p.Name)
		case j >= 0:
			given[i] = inputs[j]
		}
	}
	dy := backward.Input(cotangent)
	given[dy] = b.Input(cotangent, backward.Inputs[dy].Type)
	if err := writeOutputs(b, p, replay(b, p, inputs, true), outputs); err != nil {
		return nil, err
	}
	values := replay(b, backward, given, true)
	for _, o := range backward.Outputs {
		b.Output(o.Name, values[o.Value])
	}
	return splitJoint(b, p, outputs)
}

func writeOutputs(b *program.Builder, p *program.Program, values []program.Value,
	outputs []string) error {
	if len(outputs) == 0 {
		return fmt.Errorf("program %q: want at least one output of the forward pass", p.Name)
	}
	for _, name := range outputs {
		id, ok := p.Output(name)
		if !ok {
			return fmt.Errorf("program %q has no output %q", p.Name, name)
		}
		b.Output(name, values[id])
	}
	return nil
}

func splitJoint(b *program.Builder, p *program.Program, outputs []string) (*Partition, error) {
	joint, err := b.Build()
	if err != nil {
		return nil, err
	}
	return (&splitter{p: joint, inputs: len(p.Inputs), outputs: len(outputs), name: p.Name}).split()
}

// splitter cuts a joint program p. The inputs of p are those of the original program, then
// those of the backward pass alone, and last the cotangent; its outputs are the forward
// outputs followed by gradients.
type splitter struct {
	p               *program.Program
	inputs, outputs int // the number of inputs and outputs of the forward pass
	name            string
}

func (s *splitter) split() (*Partition, error) {
	part := &Partition{}
	arguments := transform.Arguments(s.p)
	outputs := slices.Clone(s.p.Outputs[:s.outputs]) // of the forward pass
	var residuals []program.Output                   // inputs of the backward pass
	taken := map[string]bool{}                       // names that a new residual must not have
	for _, in := range s.p.Inputs {
		taken[in.Name] = true
	}
	for _, o := range s.p.Outputs[:s.outputs] {
		taken[o.Name] = true
	}
	for _, id := range s.cut() {
		r := s.residual(id, taken)
		if r.Type = s.p.TypeOf(id); !taken[r.Name] { // neither an input nor an output yet
			outputs = append(outputs, program.Output{Name: r.Name, Value: id})
		}
		taken[r.Name] = true
		residuals = append(residuals, program.Output{Name: r.Name, Value: id})
		part.Residuals = append(part.Residuals, r)
	}
	rest := arguments[s.inputs:]
	for _, in := range rest[:len(rest)-1] {
		own := Residual{Name: in.Name, Input: true, Type: s.p.TypeOf(in.Value)}
		part.Residuals = append(part.Residuals, own)
	}
	var forwardErr, backwardErr error
	forward, backward := extend(s.name, ".forward"), extend(s.name, ".backward")
	from, gradients := append(residuals, rest...), s.p.Outputs[s.outputs:]
	part.Forward, forwardErr = transform.Extract(s.p, forward, arguments[:s.inputs], outputs)
	part.Backward, backwardErr = transform.Extract(s.p, backward, from, gradients)
	return part, errors.Join(forwardErr, backwardErr)
}

// residual names a value: by its name as an input or forward output, or else r.<n>.
// If an input and another output have the same name, only the input keeps it.
func (s *splitter) residual(id program.ID, taken map[string]bool) Residual {
	if int(id) < s.inputs {
		return Residual{Name: s.p.Inputs[id].Name, Input: true}
	}
	for _, o := range s.p.Outputs[:s.outputs] {
		if o.Value == id && s.p.Input(o.Name) < 0 {
			return Residual{Name: o.Name}
		}
	}
	n := 0
	for taken[fmt.Sprintf("r.%d", n)] {
		n++
	}
	return Residual{Name: fmt.Sprintf("r.%d", n)}
}
