// Package rows executes programs that compute rows from rows in the processor's caches: it reads some rows of the inputs, runs
// all operations of the program on them, and writes the same rows of the outputs. Where a compiled graph makes a pass over
// memory for each operation, this makes one for all of them.
//
// It takes what package triton takes, the same programs for GPUs: elementwise operations, sums and extremes along a row or
// along groups in it, rotations, bools and integers, and inputs [1, n] that all rows share. [Divide] cuts off what needs whole
// tensors. [Compile] refuses other programs with a [*Refusal], and the caller lowers them to a graph.
//
// Results have the same bits for any number of tasks and with any vector instructions or none. They are those of the
// definition of the operations, in float32, except in what it leaves open: the order of sums (see package loops), the last bits
// of exponentials, the sign of some zeros, and the sign and payload of NaN.
//
// This package knows programs and slices, and no graphs or devices.
package rows
