// Package tile executes programs of elementwise operations in the processor's caches:
// it walks the tensors tile by tile, a few thousand elements at a time, and runs all
// operations of a program on one tile before it goes to the next. Where a compiled
// graph is a pass over memory for each operation, this is one pass for all of them.
//
// [Compile] takes programs whose values are tensors of one number of elements, and
// scalars, with sums and extremes over whole tensors and rotations of blocks that fit a
// tile among them; it refuses all others with a [*RefusedError], and the caller lowers
// those to a graph. What it takes gives the bits that package lower gives on the CPU
// device, but for what the definition of the operations leaves open: the order of
// summation, in rotations too, the sign of a zero from max, min, clamp and round, the
// sign and payload of NaN. (And abs(−0) is 0, which the CPU
// device forgets in builds without vector instructions.) Exponentials and hyperbolic
// tangents are refused, as their last bits differ.
//
// A [Runner] executes kernels on slices of float32. Results do not depend on the
// number of goroutines or on the vector instructions: tiles have a fixed size, sums
// within a tile a fixed order, and the sums of tiles are added in order.
//
// An output may be the same memory as the input of the same name, which it then
// replaces; all other slices of a run must be apart.
//
// The room knows programs and slices. Devices, optimizers and training steps are
// elsewhere.
package tile
