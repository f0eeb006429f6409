// Package loops has the elementwise loops that the CPU executors are made of: operations of
// programs on slices of float32, in plain Go and with vector instructions.
//
// An operation is defined by its result for one element ([One], [Two]). Loops over slices give the
// same bits, whatever the width of the vectors and whether there are any, and so do sums, whose
// order is fixed: see [Lanes]. Results may overwrite an operand. Bools are the floats 0 and 1;
// integers are stored as floats with the same bits, on which only integer operations compute.
//
// The package also has row-wise functions that models need: adjoints of norms, gates, losses of
// logits; lookups and order statistics; and random bits (Threefry-2x32, Salmon et al. 2011). It
// does not know programs, graphs or devices.
package loops
