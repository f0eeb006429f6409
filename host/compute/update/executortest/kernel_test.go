package executortest_test

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/host/compute/update/executortest"
	"github.com/cage-qat/cage/host/internal/testkernel"
	"github.com/cage-qat/cage/internal/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// kernels is package triton, whose text is executed by package testkernel.
type kernels struct{}

func (kernels) Compile(p *program.Program) (executortest.Kernel, error) {
	k, err := testkernel.Compile(p, testkernel.Rows(p), nil)
	var refused *triton.Refusal
	if errors.As(err, &refused) {
		return nil, errors.Join(executortest.ErrRefused, err)
	}
	return k, err
}

func (kernels) Run(_ int, calls []executortest.Call) error {
	for _, c := range calls {
		in := map[string]reference.Tensor{}
		for _, input := range c.Program.Inputs {
			data := make([]float64, len(c.Inputs[input.Name]))
			for i, x := range c.Inputs[input.Name] {
				data[i] = float64(x)
			}
			in[input.Name] = reference.Floats(data, input.Type.Shape...)
		}
		out, err := c.Kernel.(*testkernel.Program).Run(in)
		if err != nil {
			return err
		}
		for name, to := range c.Outputs {
			for i, x := range out[name].Floats {
				to[i] = float32(x)
			}
		}
	}
	return nil
}

// kernelSubject refuses rows of more than 16,384 elements and rotations of few.
var kernelSubject = executortest.Subject{Executor: kernels{}, Accepts: map[randprog.Family]float64{randprog.Elementwise: 0.8}}

// TestKernels: package triton, by what its text says.
func TestKernels(t *testing.T) { executortest.Run(t, kernelSubject) }
