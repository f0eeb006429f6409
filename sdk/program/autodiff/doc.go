// Package autodiff differentiates programs in reverse mode. The gradient of a program is
// again a program.
//
// The rule for each operation is in the column Gradient of the table in package program.
// [VJP] returns the gradient as one program with the same inputs. [Split] returns two
// programs, as a training step needs them: a forward program that also returns what the
// backward pass needs, and a backward program that starts from that. A device may
// differentiate programs in its own way; this package defines what the right result is,
// and what need not be computed.
package autodiff
