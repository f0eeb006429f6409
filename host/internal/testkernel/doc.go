// Package testkernel executes the text of kernels that package triton writes, slowly and
// without a GPU, so that tests can compare their results with what programs mean.
//
// It knows the operations that package triton uses and no others, and it is strict: the
// types in the text must be those that the operands have, every name must be known, and
// every access to memory must be inside a tensor. Whether a GPU's compiler takes the text
// is seen by compiling it; see scripts/predict.sh.
package testkernel
