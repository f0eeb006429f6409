// Package lower turns programs of package sdk/program into nodes of a GoMLX graph, so that a
// plugin's programs are compiled into the training step.
//
// Every operation has the semantics of the table in sdk/program on every device. Most operations
// are one node of GoMLX with exactly these semantics. Where the Go backend's operation deviates
// or is slow because it has no vector kernel, gobackendRules replaces it.
//
// [NewQuantizer] divides a quantizer's program into a forward and a backward pass, and
// [FakeQuantizer.KeepRotated] does so without the last rotation. While a graph is built, a pass may
// become another program: with codes of its value as further outputs (codes.go), or fused with the
// program that computes its operand ([Source]). It is lowered to nodes, to the call of a kernel,
// or, on the CPU, to nodes and one pass over rows (kernel.go).
//
// Functions here build graphs and, by GoMLX's convention, panic on a mistake; host/compute/engine
// turns the panic into an error. Programs must have passed their validation. This package is
// independent of plugins, models and training.
package lower
