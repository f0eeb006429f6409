// Package cpu executes programs on the processor in one pass through its caches: it reads a part of
// the inputs, runs all operations of the program on it, and writes the same part of the outputs.
// A compiled program is a [Pass]. It sweeps over memory once, and once more for each sum over whole
// tensors that other elements depend on.
//
// A part is a range of rows or, if no operation depends on rows, any run of elements
// ([CompileFlat]). Supported are elementwise operations on floats, integers and bools; sums, maxima
// and minima over rows, over groups in a row or over whole tensors; and rotations of blocks. Inputs
// of shape [1, n] may be shared by all rows. Package triton takes the same programs for GPUs.
// Other programs are refused with a [*passes.Refusal]; package plan divides them.
//
// Results have the same bits for any number of goroutines and with any vector instructions or none.
// They follow the definition of the operations, in float32. The definition leaves open the order of
// sums (see package loops; sums of parts are added in order), the last bits of exponentials, the
// sign of some zeros, and the sign and payload of NaN.
//
// This package works on programs and slices, independent of graphs and devices.
package cpu
