// Package tile executes programs of elementwise operations in the processor's caches: it
// walks the tensors tile by tile, a few thousand elements at a time, and runs all
// operations of a program on one tile before it goes on to the next. Where a compiled
// graph makes a pass over memory for each operation, this makes one pass for all of them.
//
// [Compile] takes programs whose values are scalars and tensors that all have the same
// number of elements. Sums and extremes over whole tensors may be among the operations,
// and rotations of blocks that fit into a tile. All other programs are refused with a
// [*RefusedError], and the caller lowers them to a graph. The results have the same bits
// as those of package lower on the CPU device, except in what the definition of the
// operations leaves open: the order of summation (in rotations, too), the sign of a zero
// from max, min, clamp and round, and the sign and payload of NaN. (Also, abs(−0) is 0
// here, while the CPU device loses the sign change in builds without vector
// instructions.) Exponentials and hyperbolic tangents are refused, because their last
// bits differ.
//
// A [Runner] executes kernels on slices of float32. Results do not depend on the number
// of goroutines or on the vector instructions: tiles have a fixed size, sums within a
// tile a fixed order, and the sums of tiles are added in order.
//
// An output may use the same memory as the input of the same name, which it then
// replaces; all other slices of a run must not overlap.
//
// This package knows programs and slices. Devices, optimizers and training steps are
// handled elsewhere.
package tile
