package lotion

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
)

// Names of the inputs and outputs of [Method.Program].
const (
	InputX        = "x"        // the parameter, float of the tensor's shape
	InputGradient = "gradient" // the clipped gradient at x
	InputFisher   = "fisher"   // F, zeros at the first step

	OutputGradient    = "gradient"    // g + ∂R/∂x
	OutputFisher      = "fisher"      // the next F
	OutputRegularizer = "regularizer" // R, scalar
	OutputVariance    = "variance"    // Σ σ², scalar
)

// Program writes one step of the tensor of that name and shape as a program of its
// own, with all of [Terms].
func (m Method) Program(name string, shape ...int) (*program.Program, error) {
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("lotion: %w", err)
	}
	b := program.NewBuilder("lotion/" + name)
	tensor := program.FloatType(shape...)
	x, g, fisher := b.Input(InputX, tensor), b.Input(InputGradient, tensor), b.Input(InputFisher, tensor)
	t := m.Regularize(b, x, g, fisher)
	b.Output(OutputGradient, t.Gradient)
	b.Output(OutputFisher, t.Fisher)
	b.Output(OutputRegularizer, t.Regularizer)
	b.Output(OutputVariance, t.Variance)
	p, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("lotion of %s: %w", name, err)
	}
	return p, nil
}
