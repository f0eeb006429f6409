// Package stage compiles programs over named tensors for a device and runs them: the stages of a
// training step, and updates, which are the programs of package cage and of optimizers for single
// tensors.
//
// A [Stage] is written as one program ([Stage.Write]). [Stage.Compile] makes a plan of it on the
// CPU (package plan), and a graph on accelerators (package lower). [Stage.Lower] adds it to a
// larger graph instead, such as that of a step that is one executable. An [Executable] runs on
// [Tensors], which are named buffers. A [Job] is a program bound to tensors by name;
// [CompileUpdate] makes one stage of a list of them.
//
// Plans and graphs agree with the reference implementation in float64 (package reference) to the
// precision of binary32; the same suite tests both (package executortest).
//
// This package deals with programs and buffers. What a step consists of, and the schedule of
// refreshes, are handled elsewhere.
package stage
