// Package triton translates a plugin's program into a GPU kernel, in the text form of Triton's
// intermediate representation. XLA compiles that text together with the step that calls it, without
// Python or the Triton package.
//
// A kernel computes whole rows: each instance reads some rows of the inputs, keeps all intermediate
// values in registers, and writes the same rows of the outputs. Elementwise operations, rotations,
// and sums and maxima over rows or groups in a row have this form. Operations that read several
// rows at once do not; [Divide] separates the part of a program with such operations, which a graph
// computes first. A program that cannot be translated is refused with a [*passes.Refusal] and
// computed by a graph.
//
// This package is independent of graphs, plugins and devices. Tests execute the text with package
// testkernel; scripts/predict.sh compiles it.
package triton
