// Package reference executes programs in plain float64 Go. It is the oracle: what it
// computes is what a program means.
//
// Every operation is written for the reader, after the table in package program;
// products, QR and eigenvalues of matrices are gonum's. Nothing here is made for speed.
// Whatever else executes programs is tested against it, and golden files are checked
// on it. It may know nothing of this repository but package program.
package reference
