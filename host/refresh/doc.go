// Package refresh renews the preconditioners of optimizers: it knows when refreshes are
// due, runs their programs on the host, and puts the results in place.
//
// A refresh may take effect a fixed number of updates late. It is then computed beside
// the steps, from copies of the states that it reads, and cut in two where updates go on
// writing what it renews ([CheckDelay]). What is pending is part of checkpoints.
//
// Their programs run in binary64, but products and QR decompositions of matrices, which
// take nearly all of the time, in binary32, as on a device ([Execute]). What refreshes do
// with whole matrices is written for speed, on package linalg. All the rest runs on the
// oracle (package reference), one operation at a time; so no program is refused.
//
// The room knows optimizers' programs and their states by name. Gradients, parameters
// and the order of a step are elsewhere.
package refresh
