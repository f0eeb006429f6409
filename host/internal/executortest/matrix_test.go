package executortest_test

import (
	"testing"

	"github.com/cage-qat/cage/host/internal/executortest"
	"github.com/cage-qat/cage/host/matrix"
	"github.com/cage-qat/cage/internal/randprog"
	"github.com/cage-qat/cage/sdk/program"
)

// matrices is package matrix.
type matrices struct{}

func (matrices) Compile(p *program.Program) (executortest.Kernel, error) {
	k, err := matrix.Compile(p)
	return k, refusal(err)
}

func (matrices) Run(threads int, calls []executortest.Call) error {
	var list []matrix.Call
	for _, c := range calls {
		inputs, outputs := inOrder(c)
		list = append(list, matrix.Call{Kernel: c.Kernel.(*matrix.Kernel), Inputs: inputs, Outputs: outputs})
	}
	return matrix.NewRunner(threads).Run(list)
}

var matrixSubject = executortest.Subject{Executor: matrices{}, Accepts: map[randprog.Kind]float64{randprog.Products: 0.8}}

func TestMatrix(t *testing.T) { executortest.Run(t, matrixSubject) }
