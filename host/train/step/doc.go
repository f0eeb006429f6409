// Package step compiles one optimizer step of quantization-aware training for a device and runs it.
//
// A step consists of stages, which are programs over named tensors. On the CPU they are a
// chain of executables, and the step's tensors are device buffers, listed by name:
//
//	quantize  param/W                     → value/W, residual/W/…    once per step
//	gradient  value/W, tokens             → loss, sum/W              once per micro-batch
//	finish    sum/W, residual/W/…         → gradient/W, norms        through the weight quantizers
//	update    param/W, gradient/W, state  → param/W, state           clip, decay, optimizer, method
//
// The host checks loss and norm before the update, so that a step in which they are not finite
// changes nothing. Weights are quantized once per step, for all micro-batches and all sites that
// read them; the method computes e = x − Q(x) from it. If the operands of a
// product have the same rotation, they and their gradients stay rotated; Q(x) itself, where needed,
// is rotated back. Package stage compiles stages for the device; package refresh recomputes
// preconditioners between finish and update.
//
// On other devices the same stages are parts of one executable, with a loop over micro-batches.
// It returns the old values if loss or norm is not finite. Steps in which the host takes part run
// as the chain on these devices, too. A device with several replicas gives each an equal part of a
// micro-batch.
package step
