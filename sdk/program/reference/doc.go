// Package reference executes programs in plain float64 Go: it is the oracle
// that says what a program means.
//
// Every operation is written for the reader, after the table in package program,
// one element at a time; products and factorizations are those of package linalg,
// the only place that is made for speed. The host's lowering to a device is tested
// against it, golden files are checked on it, and refresh programs (matrix
// factorizations) run on it in earnest, with products in the precision of a device
// ([RunFast]). Nothing but package program may be known here.
package reference
