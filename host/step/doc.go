// Package step compiles one optimizer step of a quantization-aware training for a
// device and runs it.
//
// A step is made of four graphs. On the CPU they are a chain of executables between
// which only device buffers pass:
//
//	quantize  x            → Q(x), residuals        once per step
//	gradient  Q(x), tokens → loss, ∂L/∂Q(x)         once per micro-batch
//	finish    ∂L/∂Q(x)     → g = ∂L/∂x, ‖g‖²        through the weight quantizers
//	update    x, g, state  → x', state'             clip, decay, optimizer, CAGE
//
// The host looks at loss and norm before the update, so that a step that is not
// finite leaves no trace. Weights are quantized once per step, whatever the number
// of micro-batches and sites that read them, and the error e = x − Q(x) that the
// method needs is at hand. Operands of products that are rotated alike stay rotated,
// with their gradients; what needs Q(x) itself rotates back. Of the update, only those
// rules are in an executable that neither package tile nor package matrix takes.
//
// Refreshes of preconditioners run between finish and update, on the host. Where the
// plan says so they run beside the steps instead, from copies of the states that they
// read, and take effect a fixed number of updates later, whatever the timing.
//
// On other devices they are the parts of one executable, with a loop over the
// micro-batches, and what is not finite leaves no trace as each output is selected
// between new and old; steps in which the host takes part run the chain there, too.
// Either way, a device with several replicas gives each its part of a micro-batch.
//
// The room knows models, quantizers and optimizers only as graphs and programs;
// files, schedules, plugins' processes and the loop live elsewhere.
package step
