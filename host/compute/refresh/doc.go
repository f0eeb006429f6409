// Package refresh recomputes the preconditioners of optimizers: it determines when refreshes are
// due, runs their programs on the host, and installs the results.
//
// A refresh may take effect a fixed number of updates late. It is then computed in the background,
// from copies of the states that it reads, while training continues. If updates also write states
// that it renews, its program has two parts ([CheckDelay]). Pending refreshes are part of
// checkpoints.
//
// Refresh programs run in binary64, except that products and QR decompositions of matrices, which
// take nearly all of the time, run in binary32, as on a device ([Execute]). These operations are
// implemented with package linalg. All others run on the reference implementation (package
// reference), one operation at a time, so that no program is refused.
//
// This package knows only the programs of optimizers and their named states. Gradients, parameters
// and the order of a step are handled elsewhere.
package refresh
