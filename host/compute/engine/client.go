package engine

import "github.com/cage-qat/cage/host/compute/shapes"

// A client gives access to accelerators, each of which is a replica.
type client interface {
	// devices returns the number of accelerators of all processes.
	devices() int
	description() string
	// upload copies a slice to one of this process's replicas.
	upload(replica int, data any, shape shapes.Shape) (part, error)
	// compile compiles StableHLO for a number of replicas, of which own are in this process.
	compile(text string, replicas, own int) (program, error)
	// memoryLimit returns the bytes that may be used of an accelerator's memory; false if unknown.
	memoryLimit() (int64, bool)
	close() error
}

// A program is what a client has compiled.
type program interface {
	// run takes the inputs, replica by replica of this process, and returns the outputs likewise.
	// Donated inputs are gone then; nil donates none.
	run(inputs []part, donate []bool) ([]part, error)
	memory() Memory
	close() error
}
