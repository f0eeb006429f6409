package executortest_test

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/host/compute/update/executortest"
	"github.com/cage-qat/cage/host/compute/update/tile"
	"github.com/cage-qat/cage/internal/randprog"
	"github.com/cage-qat/cage/sdk/program"
)

// tiles is package tile.
type tiles struct{}

func (tiles) Compile(p *program.Program) (executortest.Kernel, error) {
	k, err := tile.Compile(p)
	return k, refusal(err)
}

func (tiles) Run(threads int, calls []executortest.Call) error {
	var list []tile.Call
	for _, c := range calls {
		inputs, outputs := inOrder(c)
		list = append(list, tile.Call{Kernel: c.Kernel.(*tile.Kernel), Inputs: inputs, Outputs: outputs})
	}
	return tile.NewRunner(threads).Run(list)
}

// refusal marks the error of a program that is refused.
func refusal(err error) error {
	var refused *tile.RefusedError
	if errors.As(err, &refused) {
		return errors.Join(executortest.ErrRefused, err)
	}
	return err
}

// inOrder lists the tensors in the order of the program.
func inOrder(c executortest.Call) (inputs, outputs [][]float32) {
	for _, in := range c.Program.Inputs {
		inputs = append(inputs, c.Inputs[in.Name])
	}
	for _, o := range c.Program.Outputs {
		outputs = append(outputs, c.Outputs[o.Name])
	}
	return inputs, outputs
}

var sliceSubject = executortest.Subject{Executor: tiles{}, Accepts: map[randprog.Family]float64{randprog.Elementwise: 1}}

// TestTileSlices: package tile by itself, on slices between others that nobody may write to.
func TestTileSlices(t *testing.T) { executortest.Run(t, sliceSubject) }
