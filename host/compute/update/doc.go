// Package update runs programs that replace tensors of a training on a device: the rules of package cage, and the
// programs with which optimizers begin, observe and refresh.
//
// A [Job] is a program bound to tensors by name. [Compile] offers the jobs to a list of executors, the fastest first:
// each takes the jobs that it can run and refuses the rest, with reasons. An [Update] then runs on [Tensors], which are
// buffers by name, and replaces those that the programs write. Everything is compiled before it runs.
//
// Executors must compute the same as the reference implementation in float64 (package reference), within the precision of binary32; they are
// all tested by one suite, package executortest. To add an executor, write one file here, and
// add it to the list and to the suite. A step that is one executable, as on accelerators, is a single
// graph: it takes the jobs' graphs from [Options.Build] and uses no other executor.
//
// This package knows programs, rules and buffers. What a step does besides its update, and when preconditioners are
// renewed, is decided elsewhere.
package update
