// Package loops has the loops over elements of which the executors on the CPU are made: operations of programs on slices of
// float32, in plain Go and with vector instructions.
//
// An operation is defined by what it does with one element ([One], [Two]). Loops over slices give the same bits, whatever the
// width of the vectors and whether there are any, and so do sums, whose order is fixed: see [Lanes]. Results may take the place
// of an operand. Bools are the floats 0 and 1; integers are floats with the same bits, which nothing but the operations on
// integers computes with.
//
// Programs, tiles and rows are unknown here.
package loops
