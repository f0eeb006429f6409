// Package compute is the wing in which programs become machine work. It holds no code of its own. Its rooms, the highest first:
//
//	refresh    when preconditioners are renewed, and by which executor
//	update     executors of update programs, with one suite of tests for all
//	lower      programs as graphs, with the gradients of their surrogates
//	pass       turns programs into other programs: factor finds codes and scales in values, rotation leaves out rotations
//	           that cancel, vectorize updates many tensors at once, byrow tells which elements belong to which row
//	triton     programs over rows as kernels for GPUs, as text
//	cpu        programs on the CPU, in one pass through its caches
//	attention  causal attention on the CPU, in blocks
//	onepass    adjoints of norms, and losses, on the CPU in one pass
//	loops      loops over elements in vectors, from which the executors of the CPU are made
//	threefry   random words from keys
//	engine     devices, compiled graphs and buffers: the only room that knows GoMLX's insides
//	matmul     products of matrices of bfloat16 and of 8-bit integers on the CPU
//
// A program of a plugin comes from package sdk/program. It is differentiated and simplified (sdk/program/autodiff,
// sdk/program/transform), rewritten by passes, and leaves as part of a graph (lower), as a kernel in it (triton,
// cpu), or as loops over parts of tensors (cpu). What programs are for, and which models and runs there are, is unknown here.
package compute
