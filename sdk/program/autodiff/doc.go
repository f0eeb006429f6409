// Package autodiff differentiates programs: reverse mode, from a program to a
// program.
//
// The rule of each operation is the column Gradient of the table in package
// program. [VJP] gives the gradient as one program of the same inputs; [Split]
// cuts it in two, as a training step needs it: a forward program that also
// returns what the backward pass will want, and a backward program that starts
// from there. The host's device may differentiate programs by means of its own;
// this package decides what the right answer is, and what need not be computed.
package autodiff
