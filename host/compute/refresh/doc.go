// Package refresh renews the preconditioners of optimizers: it determines when refreshes are due,
// runs their programs on the host, and installs the results.
//
// A refresh may take effect a fixed number of updates late. It is then computed while steps go on,
// from copies of the states that it reads. If updates meanwhile write states that it renews, its
// program is cut in two ([CheckDelay]). Pending refreshes are part of checkpoints.
//
// Refresh programs run in binary64, except that products and QR decompositions of
// matrices, which take nearly all of the time, run in binary32, as on a device
// ([Execute]). Operations on whole matrices are written for speed, on top of package
// linalg. Everything else runs on the reference implementation (package reference), one
// operation at a time, so that no program is refused.
//
// This package deals with the programs of optimizers, and their states by name. Gradients,
// parameters and the order of a step are handled elsewhere.
package refresh
