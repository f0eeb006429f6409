// Package step compiles one optimizer step of a quantization-aware training for a
// device and runs it.
//
// A step is made of stages, functions of named tensors. On the CPU they are a chain of
// executables, and the step's tensors are a list of device buffers by name:
//
//	quantize  param/W                     → value/W, residual/W/…    once per step
//	gradient  value/W, tokens             → loss, sum/W              once per micro-batch
//	finish    sum/W, residual/W/…         → gradient/W, norms        through the weight quantizers
//	update    param/W, gradient/W, state  → param/W, state           clip, decay, optimizer, CAGE
//
// The host looks at loss and norm before the update, so that a step that is not
// finite leaves no trace. Weights are quantized once per step, whatever the number
// of micro-batches and sites that read them, and the error e = x − Q(x) that the
// method needs is at hand. Operands of products that are rotated alike stay rotated,
// with their gradients; what needs Q(x) itself rotates back. Updates run as package
// update finds best for the device; preconditioners are renewed by package refresh
// between finish and update.
//
// On other devices the same stages are the parts of one executable, with a loop over
// the micro-batches, and what is not finite leaves no trace as each output is selected
// between new and old; steps in which the host takes part run the chain there, too.
// Either way, a device with several replicas gives each its part of a micro-batch.
//
// The room knows models, quantizers and optimizers only as graphs and programs;
// files, schedules, plugins' processes and the loop live elsewhere.
package step
