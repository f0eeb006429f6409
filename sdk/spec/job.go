package spec

import "github.com/cage-qat/cage/sdk/program"

// Job is a program bound to named tensors, for an executor. [program.Kind.Of] makes the names.
type Job struct {
	// Tensor is the parameter that the program updates or quantizes.
	Tensor  string
	Program *program.Program
	// Inputs and Outputs map the names of the program's inputs and outputs to tensors. An
	// input without an entry is a scalar of the run; an output without an entry is a
	// measure, a float scalar for the host.
	Inputs, Outputs map[string]string
	// Storage holds the storage type of each tensor that is neither float32 nor a key of
	// random bits. The program reads and returns floats regardless.
	Storage map[string]Storage
	// Donated is the set of inputs whose memory the execution may overwrite or free. It has
	// no effect on a tensor that another job also reads.
	Donated map[string]bool
}

// Measures lists the outputs that are measures: those that are not bound to a tensor.
func (j *Job) Measures() []string {
	var list []string
	for _, o := range j.Program.Outputs {
		if _, bound := j.Outputs[o.Name]; !bound {
			list = append(list, o.Name)
		}
	}
	return list
}
