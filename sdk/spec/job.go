package spec

import "github.com/cage-qat/cage/sdk/program"

// Job is a program bound to tensors by name, for an executor. Names are those of
// [program.TensorID].
type Job struct {
	// Tensor is the parameter that the program works on.
	Tensor  string
	Program *program.Program
	// Inputs and Outputs map the names of the program's inputs and outputs to tensors. An
	// input without an entry is a scalar of the run; an output without an entry is a
	// measure, a float scalar for the host.
	Inputs, Outputs map[string]string
	// Storage is the type in memory of tensors that are not float32 or keys of random
	// bits. The program reads and returns floats all the same.
	Storage map[string]Storage
	// Donated is the set of inputs whose memory the run may overwrite or free. It has no
	// effect on a tensor that another job reads, too.
	Donated map[string]bool
}

// Measures lists the outputs that go to the host.
func (j *Job) Measures() []string {
	var list []string
	for _, o := range j.Program.Outputs {
		if _, bound := j.Outputs[o.Name]; !bound {
			list = append(list, o.Name)
		}
	}
	return list
}
