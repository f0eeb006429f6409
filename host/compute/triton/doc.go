// Package triton translates a program of a plugin into one kernel for a GPU, in the text
// form of Triton's intermediate representation. XLA compiles that text together with the
// step that calls it; neither Python nor the Triton package is involved.
//
// A kernel computes whole rows: each instance reads some rows of the inputs, keeps all intermediate
// values in registers, and writes the same rows of the outputs. Sums and maxima along a row or
// along groups in it, rotations, and everything elementwise fit this form. Operations that read
// several rows at once do not; [Divide] separates the part of a program that has them, so that a
// graph computes it first. A program that cannot be translated is refused with a [*Refusal], and
// remains a graph.
//
// This package is independent of graphs, plugins and devices. Tests execute the text with package
// testkernel; scripts/predict.sh compiles it.
package triton
