// Package lower turns programs of package sdk/program into nodes of a graph for accelerators, so
// that a plugin's programs are compiled into the training step. For all devices, it prepares the
// passes of quantizers as programs.
//
// On every device, operations have the semantics defined in sdk/program. Most become one operation
// of StableHLO with exactly these semantics.
//
// [NewQuantizer] divides a quantizer's program into a forward and a backward pass, and
// [FakeQuantizer.KeepRotated] does so without the last rotation. While a graph is built, the
// program of a pass may be extended: it may also return the codes of its value (codes.go), or be
// fused with the program that computes its operand ([Source]). It is lowered to nodes or to a call
// of a kernel (kernel.go).
//
// Functions here build graphs and, like package graph, panic on a mistake; host/compute/engine
// turns the panic into an error. Programs must be valid. This package is independent of plugins,
// models and training.
package lower
