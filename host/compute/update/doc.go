// Package update runs programs that replace tensors on a device during training: the rules of
// package cage, and optimizers' programs for initialization, observation and refreshes.
//
// A [Job] is a program bound to tensors by name. On the CPU, [Compile] assigns jobs to package cpu
// if it can run them, and builds one graph from all others. An [Update] then runs on [Tensors],
// which are named buffers, and replaces those that the programs write. A [Stage] is any other
// function of named tensors. Everything is compiled before it runs.
//
// Package cpu and graphs agree with the reference implementation in float64 (package reference) to
// the precision of binary32; the same suite tests both (package executortest). A step that is one
// executable, as on accelerators, takes the jobs' graphs from [Build].
//
// This package deals with programs, rules and buffers. The rest of a step, and the schedule of
// refreshes, are handled elsewhere.
package update
