package plugintest

import (
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// gradient runs the reverse pass of one output of p with respect to one input,
// both of the shape of dy.
func (m Machine) gradient(t testing.TB, p *program.Program, input, output string, inputs map[string]reference.Tensor, dy reference.Tensor) []float64 {
	t.Helper()
	vjp, err := autodiff.VJP(p, output, input)
	if err != nil {
		t.Fatal(err)
	}
	inputs[autodiff.Prefix+output] = dy
	return m.Run(t, vjp, inputs)[autodiff.Prefix+input].Float64s()
}
