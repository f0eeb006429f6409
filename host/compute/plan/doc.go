// Package plan executes whole programs on the processor. A program becomes a list of instructions:
// calls that have a [Kernel], products, lookups, transposes and the like, one after the other, and
// what lies between them in passes of package cpu, each of as many operations as it can compute in
// one pass over memory. Any other operation is computed by the reference implementation, in
// binary64, and rounded.
//
// Memory is planned once: values of one element type that do not live at the same time share it,
// and a run takes it from a pool, part by part, unless it is little. With products in bfloat16, a
// value that all its readers round to bfloat16, or accept so, is stored in bfloat16.
//
// This package works on programs and slices, as package cpu does; it does not know
// graphs or models.
package plan
