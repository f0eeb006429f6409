// Package testkernel executes the text of kernels written by package triton, slowly and
// without a GPU, so that tests can compare their results with what programs mean.
//
// It knows only the operations that package triton uses, and it is strict: the types in
// the text must be those of the operands, every name must be known, and every access to
// memory must be inside a tensor. Whether a GPU's compiler accepts the text can only be
// found out by compiling it; see scripts/predict.sh.
package testkernel
