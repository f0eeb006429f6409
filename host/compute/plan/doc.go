// Package plan executes whole programs on the processor. A program becomes a list of instructions:
// calls that have a [Kernel]; products, lookups, transposes and the like; and passes of package cpu
// over the operations between these, with as many operations in each as it can compute in
// one pass over memory. Any other operation is computed by the reference implementation, in
// binary64, and rounded.
//
// Memory is planned once: values of one element type that are never live at the same time share it,
// and a run takes it from a pool piece by piece, unless it is small. With products in bfloat16, a
// value is stored in bfloat16 if all its readers round it to bfloat16 or accept it.
//
// This package works on programs and slices, as package cpu does; it does not know
// graphs or models.
package plan
