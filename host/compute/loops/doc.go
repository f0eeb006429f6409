// Package loops implements the elementwise loops of the CPU executors: the operations of programs
// on slices of float32, in plain Go and with vector instructions.
//
// An operation is defined by its result for one element ([One], [Two]). Loops over slices give the
// same bits with vectors of any width and without vectors. So do sums, whose order is fixed: see
// [Lanes]. Results may overwrite an operand. Bools are the floats 0 and 1; integers are stored as
// floats with the same bits, on which only integer operations compute.
//
// The package also has row-wise functions for models (adjoints of norms, gates, losses from
// logits), lookups, order statistics, and random bits (Threefry-2x32, Salmon et al. 2011). It is
// independent of programs, graphs and devices.
package loops
