// Package compute is the layer in which programs are computed. It holds no code of its own. Its
// packages, the highest first:
//
//	refresh    when the preconditioners of optimizers are renewed, and the executor that does it
//	update     executors of update programs, with one test suite for all
//	lower      programs as graphs, with the gradients of their surrogates
//	triton     programs over rows as kernels for GPUs, as text
//	cpu        programs on the CPU, in one pass through its caches
//	passes     programs rewritten or divided: rows, codes and scales, rotations that cancel
//	attention  causal attention on the CPU, in blocks
//	loops      loops over elements, norms, losses and random bits, of which the CPU's code is made
//	engine     devices, compiled graphs and buffers; GoMLX's internals are used here alone
//	matmul     products of matrices of bfloat16 and of 8-bit integers on the CPU
//	device     what a configuration can ask of a device
//
// A plugin's program (package sdk/program) is differentiated and simplified (sdk/program/autodiff,
// sdk/program/transform) and rewritten by passes. It then runs as a part of a graph (lower), as a
// kernel in one (triton), or as loops over parts of tensors (cpu). Nothing here depends on what a
// program is for, on a model or on a run.
package compute
