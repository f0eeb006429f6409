package cage

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// step is a program of a rule under construction.
type step struct {
	rule  Rule
	b     *program.Builder
	in    map[string]program.Value
	state map[string]program.Value // as it is so far
	x     program.Value            // x_t as it came in
	α, λ  program.Value            // α_t of this tensor, and λ_t
	e     program.Value            // see forwardError
	// finite is whether the residual of the correction is.
	finite program.Value
}

// begin declares the inputs.
func (r Rule) begin(prefix string) *step {
	s := &step{rule: r, b: program.NewBuilder(prefix + r.Name), in: map[string]program.Value{}, state: map[string]program.Value{}}
	for _, i := range r.Inputs() {
		s.in[i.Name] = s.b.Input(i.Name, i.Type)
	}
	for _, t := range r.State() {
		s.state[t.Name] = s.in[sdk.StatePrefix+t.Name]
	}
	s.x, s.α, s.λ = s.in[InputX], s.scaled(s.in[InputRate]), s.in[InputLambda]
	return s
}

// direction writes the optimizer's programs and returns u.
func (s *step) direction(x, g program.Value) program.Value {
	if o := s.rule.Optimizer.Observe; o != nil && !s.rule.Observed {
		s.optimize(o, x, g)
	}
	return s.optimize(s.rule.Optimizer.Update, x, g)[sdk.OutputDirection]
}

// optimize inlines one of the optimizer's programs and takes over the state that it
// returns.
func (s *step) optimize(p *program.Program, x, g program.Value) map[string]program.Value {
	args := []program.Value{x, g, s.in[InputStep]}
	for _, t := range s.rule.Optimizer.State {
		args = append(args, s.state[t.Name])
	}
	out := s.b.Inline(p, args...)
	for name, v := range out {
		if t, ok := strings.CutPrefix(name, sdk.StatePrefix); ok {
			s.state[t] = v
		}
	}
	return out
}

// quantize is Q at any point, with the trained parameters as they are.
func (s *step) quantize(x program.Value) program.Value {
	args := []program.Value{x}
	for _, t := range s.rule.Quantizer.Trained {
		args = append(args, s.in[sdk.TrainedPrefix+t.Name])
	}
	return s.b.Inline(s.rule.Quantizer.Program, args...)[sdk.OutputValue]
}

// output declares the outputs: x_{t+1}, the next state and the measures.
func (s *step) output(x program.Value) {
	s.b.Output(OutputX, x)
	for _, t := range s.rule.State() {
		s.b.Output(sdk.StatePrefix+t.Name, s.state[t.Name])
	}
	s.measure()
}

// build ends the program.
func (s *step) build() (*program.Program, error) {
	p, err := s.b.Build()
	if err != nil {
		return nil, fmt.Errorf("update of %s: %w", s.rule.Name, err)
	}
	return p, nil
}
