// Package compute has no code of its own. Its subpackages run programs. From the highest layer to
// the lowest:
//
//	refresh    schedules the refreshes of optimizers' preconditioners, and runs their programs
//	stage      compiles the stages of a step, and updates of tensors, for a device
//	fakequant  prepares quantizers as programs
//	plan       runs whole programs on the CPU
//	lower      lowers programs to graphs for accelerators, calls by rules
//	calls      names the calls that are not of models: of quantizers, and between replicas
//	triton     translates programs over rows to the text of GPU kernels
//	cpu        runs parts of programs on the CPU, in one pass through its caches
//	passes     rewrites and divides programs: rows, codes and scales, rotations that cancel
//	attention  computes causal attention on the CPU, in blocks
//	engine     provides devices, executables and buffers
//	graph      builds programs of StableHLO operations, for accelerators
//	shapes     describes tensors on devices
//	matmul     multiplies matrices on the CPU: float32, bfloat16, 8-bit integers
//	memory     gives out memory that tensors share in turn
//	loops      implements the CPU's loops over elements, norms, losses and random bits
//	device     defines the device settings of a configuration
//
// A program (package sdk/program), of a plugin or a model, is differentiated and simplified
// (sdk/program/autodiff, sdk/program/transform) and rewritten by passes. On the CPU it then runs as
// a plan, whose parts are loops (cpu) and kernels of calls; elsewhere as a graph (lower), which may
// call kernels (triton). These packages are independent of models, runs and the purpose of a
// program.
package compute
