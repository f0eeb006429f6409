// Package lower turns programs of package sdk/program into nodes of a GoMLX graph, so
// that what a plugin wrote is compiled into the training step.
//
// Every operation means what the table in sdk/program says, on every device. Most
// operations are one node of GoMLX with exactly that meaning. Where the Go backend's own
// operation deviates (its vectorized maximum loses NaN, its exponential saturates) or is
// slow because it has no vector kernel, gobackend.go uses several nodes
// in its place. XLA gets the plain nodes.
//
// A quantizer's program comes as answer.Quantizer: what its author's builder made, or
// what has crossed the wire and was checked. [NewQuantizer] divides it into a forward and a
// backward pass, and [Quantizer.KeepRotated] into such without the last rotation. While
// a graph is built, a pass may become another program: with codes of its value as further
// outputs (codes.go), or fused with the program that computes its operand ([Source]). It
// ends as nodes, as the call of a kernel, or, on the CPU in float32, as nodes and passes over rows with the same bits (pieces.go).
//
// Functions here build graphs and, by GoMLX's convention, panic on a mistake; host/compute/engine
// turns the panic into an error. Programs must have passed their validation. Nothing here
// knows about plugins, models or training.
package lower
