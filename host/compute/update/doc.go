// Package update runs programs that replace tensors of a training on a device: the rules of package
// cage, and optimizers' programs for initialization, observation and refreshes.
//
// A [Job] is a program bound to tensors by name. On the CPU, [Compile] gives the jobs that package
// cpu can run to that package, and makes one graph of all others. An [Update] then runs on
// [Tensors], which are buffers by name, and replaces those that the programs write. A [Stage] is
// any other function of named tensors. Everything is compiled before it runs.
//
// Both compute the same as the reference implementation in float64 (package reference), within the
// precision of binary32; one suite tests them (package executortest). A step that is one
// executable, as on accelerators, takes the jobs' graphs from [Build].
//
// This package deals with programs, rules and buffers. The rest of a step, and the schedule of
// refreshes, are decided elsewhere.
package update
