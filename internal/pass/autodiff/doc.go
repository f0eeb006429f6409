// Package autodiff differentiates programs in reverse mode. The gradient of a program is
// a program.
//
// The rule of each operation is the column Gradient of the table in package
// program. [VJP] gives the gradient as one program of the same inputs. [Split]
// gives two, as a training step needs them: a forward program that also returns
// what the backward pass needs, and a backward program that starts from there. A
// device may differentiate programs by means of its own; what the right answer is,
// and what need not be computed, is decided here.
package autodiff
