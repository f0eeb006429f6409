// Package fakequant prepares the quantizers of a training as programs, for all devices. A
// [Quantizer] divides a plugin's program into a forward and a backward pass, which may be in
// different programs, or makes a call of them. [Quantizer.KeepRotated] leaves out the last
// rotation. An [Operand] quantizes an operand of a product in the backward pass, and [Packed]
// stores a frozen weight as the codes and scales of its quantizer.
//
// Programs must be valid. Functions that add to a program record mistakes in its builder.
package fakequant
