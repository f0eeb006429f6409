package executortest_test

import (
	"testing"

	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/compute/update/executortest"
	"github.com/cage-qat/cage/internal/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// refreshes is the executor of package refresh, which computes in binary64, but products
// of matrices in binary32.
type refreshes struct{}

func (refreshes) Compile(p *program.Program) (executortest.Kernel, error) { return p, nil }

func (refreshes) Run(_ int, calls []executortest.Call) error {
	for _, c := range calls {
		in := map[string]reference.Tensor{}
		for _, input := range c.Program.Inputs {
			wide := make([]float64, input.Type.Size())
			for i, v := range c.Inputs[input.Name] {
				wide[i] = float64(v)
			}
			in[input.Name] = reference.Floats(wide, input.Type.Shape...)
		}
		out, err := refresh.Execute(c.Program, in)
		if err != nil {
			return err
		}
		for name, value := range out {
			for i, v := range value.Floats {
				c.Outputs[name][i] = float32(v)
			}
		}
	}
	return nil
}

var refreshSubject = executortest.Subject{
	Executor: refreshes{}, Double: true,
	Accepts: map[randprog.Family]float64{randprog.Elementwise: 1, randprog.General: 1},
}

func TestRefresh(t *testing.T) { executortest.Run(t, refreshSubject) }
