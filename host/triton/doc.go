// Package triton writes a program of a plugin as one kernel for a GPU, in the text of
// Triton's intermediate representation. XLA compiles such text together with the step that
// calls it; neither Python nor the Triton package takes part.
//
// A kernel computes whole rows: each of its instances reads some rows of the inputs, keeps
// everything between in registers, and writes the same rows of the outputs. Sums and
// maxima along a row or along groups in it, rotations, and all that is elementwise fit
// this form. What reads several rows at once does not; [Divide] takes out the part of a
// program that does, so that a graph computes it first. A program that cannot be written
// is refused with a [*Refusal], and stays a graph.
//
// Nothing here builds graphs, and nothing knows plugins or devices. The text is executed in
// tests by package testkernel, and compiled by scripts/predict.sh.
package triton
