// Package lower turns programs of package sdk/program into nodes of a graph for accelerators, so
// that a plugin's programs are compiled into the training step.
//
// On every device, operations have the semantics defined in sdk/program. Most become one operation
// of StableHLO with exactly these semantics.
//
// [Calls.Lower] lowers a program with calls. The calls of a quantizer and of its adjoint
// ([calls.Quantize]) may be fused with the program that computes its operand ([Source]). They are
// lowered to nodes, or to a call of a kernel (kernel.go).
//
// Functions here build graphs and, like package graph, panic on a mistake; host/compute/engine
// turns the panic into an error. Programs must be valid. This package is independent of plugins,
// models and training.
package lower
