// Package step compiles one optimizer step of quantization-aware training for a device
// and runs it.
//
// A step consists of stages, which are functions of named tensors. On the CPU they are a
// chain of executables, and the step's tensors are device buffers, listed by name:
//
//	quantize  param/W                     → value/W, residual/W/…    once per step
//	gradient  value/W, tokens             → loss, sum/W              once per micro-batch
//	finish    sum/W, residual/W/…         → gradient/W, norms        through the weight quantizers
//	update    param/W, gradient/W, state  → param/W, state           clip, decay, optimizer, method
//
// The host looks at loss and norm before the update, so that a step that is not finite
// changes nothing. Weights are quantized once per step, however many micro-batches and
// sites read them, and the error e = x − Q(x) that the method needs is at hand. Operands
// of products that are rotated alike stay rotated, and so do their gradients; what needs
// Q(x) itself rotates back. Package update chooses how updates run on the device; package
// refresh renews preconditioners between finish and update.
//
// On other devices the same stages are the parts of one executable, with a loop over the
// micro-batches. A step that is not finite changes nothing there either, because each
// output is selected between the new and the old value. Steps in which the host takes
// part run as the chain on these devices, too. Either way, a device with several replicas
// gives each its part of a micro-batch.
//
// This package knows models, quantizers and optimizers only as graphs and programs.
// Files, schedules, the processes of plugins and the training loop live elsewhere.
package step
