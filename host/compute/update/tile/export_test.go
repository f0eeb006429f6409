package tile

import "github.com/cage-qat/cage/sdk/program"

// Program returns the program as it is executed, with the inputs and outputs of the
// one that was compiled.
func (k *Kernel) Program() *program.Program { return k.p }

// Passes is how often a run walks over the tensors: once, and once more for every
// reduction on whose result other elements depend.
func (k *Kernel) Passes() int { return len(k.phases) }
