package cpu

import (
	"maps"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Operations lists the operations that rows have.
func Operations() []program.Op {
	ops := []program.Op{program.OpConstant, program.OpIota, program.OpStopGradient, program.OpBitcast, program.OpReshape, program.OpBroadcast,
		program.OpReduceSum, program.OpReduceMax, program.OpReduceMin, program.OpHadamard, program.OpConvert}
	return slices.AppendSeq(ops, maps.Keys(operations))
}

// Program is the program as it is executed, with the inputs and outputs of the one that was compiled.
func (k *Kernel) Program() *program.Program { return k.p }

// Passes is how often a run walks over the tensors: once, and once more for every reduction on whose result other elements
// depend.
func (k *Kernel) Passes() (n int) {
	for _, p := range k.passes {
		if len(p.code) > 0 {
			n++
		}
	}
	return n
}
