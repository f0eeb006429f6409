// Package loops has the loops over elements of which the executors on the CPU are made: operations
// of programs on slices of float32, in plain Go and with vector instructions.
//
// An operation is defined by what it does with one element ([One], [Two]). Loops over slices give
// the same bits, whatever the width of the vectors and whether there are any, and so do sums, whose
// order is fixed: see [Lanes]. Results may take the place of an operand. Bools are the floats 0 and
// 1; integers are floats with the same bits, which nothing but the operations on integers computes
// with.
//
// Beside these loops there are functions of whole rows that models need: adjoints of norms, gates,
// losses of logits; lookups and order statistics; and random bits (Threefry-2x32, Salmon et al.
// 2011). The package knows no programs, graphs or devices.
package loops
