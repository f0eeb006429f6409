package cage

import (
	"strings"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// ObserveProgram returns a program for the optimizer's observation alone, for a step in
// which the observation is followed by a refresh. It maps the inputs of the rule to the
// state tensors that the observation changes. It is nil if the optimizer has no
// observation.
func (r Rule) ObserveProgram() (*program.Program, error) {
	if r.Optimizer.Observe == nil {
		return nil, nil
	}
	s := r.begin("observe/")
	g := s.gradient()
	s.optimize(r.Optimizer.Observe, s.decayFirst(s.x), g)
	for _, o := range r.Optimizer.Observe.Outputs {
		s.b.Output(o.Name, s.state[strings.TrimPrefix(o.Name, sdk.StatePrefix)])
	}
	return s.build()
}
