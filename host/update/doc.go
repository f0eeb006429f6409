// Package update runs programs that replace tensors of a training on a device: the rules
// of package cage, and the programs with which optimizers begin, observe and refresh.
//
// A [Job] is a program bound to tensors by name. [Compile] offers the jobs to the
// executors of a list, the fastest first: each takes what it can run and refuses the
// rest, with reasons. An [Update] then runs on [Tensors], buffers by name, and replaces
// those that the programs write. Everything is compiled before it runs.
//
// Executors must give what the float64 oracle gives (package reference), within the
// precision of binary32: executortest is the one suite for all of them. A new executor
// is one file here, begun from [Null], with a line in the list and one in the suite. A
// step that is one executable, as on accelerators, is a graph as a whole: it takes the jobs' graphs from
// [Options.Build] and asks no other executor.
//
// The room knows programs, rules and buffers. What a step does beside its update, and
// when preconditioners are renewed, is elsewhere.
package update
