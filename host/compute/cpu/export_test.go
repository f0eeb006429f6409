package cpu

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/sdk/program"
)

// Operations returns the operations that package cpu executes.
func Operations() []program.Op {
	ops := []program.Op{program.OpConstant, program.OpIota, program.OpStopGradient, program.OpBitcast,
		program.OpReshape, program.OpBroadcast,
		program.OpReduceSum, program.OpReduceMax, program.OpReduceMin, program.OpHadamard,
		program.OpConvert}
	for _, info := range program.Ops() {
		if floats, _ := info.Op.Scalar(); floats != nil && operations[info.Op] == (byType{}) {
			ops = append(ops, info.Op)
		}
	}
	return slices.AppendSeq(ops, maps.Keys(operations))
}

// Program returns the program as it is executed, with the inputs and outputs of the compiled one.
func (pass *Pass) Program() *program.Program { return pass.p }

// Sweeps returns the number of sweeps over the tensors in a run: one, and one more for each
// reduction in the longest chain of reductions on which elements depend.
func (pass *Pass) Sweeps() (n int) {
	for _, s := range pass.sweeps {
		if len(s.code) > 0 {
			n++
		}
	}
	return n
}

// Goroutines returns a [loops.Parallel] that uses count goroutines.
func Goroutines(count int) loops.Parallel {
	return func(n int, f func(i int)) {
		var next atomic.Int64
		work := func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				f(int(i - 1))
			}
		}
		var others sync.WaitGroup
		for range count - 1 {
			others.Go(work)
		}
		work()
		others.Wait()
	}
}
