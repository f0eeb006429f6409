// Package ext has the capabilities that few algorithms need. An author implements them on the type
// of the quantizer or the optimizer, like those of package sdk. Each names its one example, in
// examples/plugins. A further one is added when two algorithms need it.
//
// The types are those of package sdk, which calls their methods, so that plugins that name them
// there build as before.
package ext

import "github.com/cage-qat/cage/sdk"

// Capabilities of quantizers.
type (
	// Sharer is an [sdk.Trainable] quantizer of which several sites train the same parameter, such
	// as a rotation of rows (SpinQuant) or one codebook for a whole model.
	//
	// Shared returns the name under which sites share the trained parameter p of this one; empty
	// means that it is the site's own. All sites that return one name, whatever their plugins, have
	// one parameter with the sum of their gradients, so its shape and constraint must be the same
	// for all. It starts from what InitTrained gives for the first of them; weights come before
	// activations. Example: spin.
	Sharer = sdk.Sharer

	// Constrained is an [sdk.Trainable] quantizer whose trained parameters must stay in a set, such
	// as that of orthogonal matrices or of positive numbers.
	//
	// Constrain builds the point of the set that replaces the value v of the trained parameter p
	// after each update, in the shape of v. It returns v itself for a parameter without a
	// constraint. The values of InitTrained must be in the set already. Example: spin.
	Constrained = sdk.Constrained

	// Maximal is an [sdk.Stateful] quantizer of whose state some tensors are maxima, such as the
	// largest magnitudes of the last steps.
	//
	// Maximum reports whether, for an activation, the state tensor s after a step is the maximum of
	// Next over the micro-batches and the replicas, element by element, and not the mean. Example:
	// delayed.
	Maximal = sdk.Maximal

	// Searcher is a quantizer of weights whose state no program can compute: a codebook by k-means,
	// codes by beam search (AQLM) or along a trellis (QTIP). The plugin's own process finds it, on
	// memory that it shares with the host; Quantize stays a program, which reads [sdk.Site.State].
	// So gradients, the correction, evaluation and export are those of every other quantizer. State
	// may be all of the result: codes and codebooks that Quantize decodes, or Q(x) itself and a
	// mask. A search sees trained parameters, but does not change them.
	//
	// SearchState lists the state tensors of a site, in any order, and after how many steps each
	// search follows; at least 1. For a site without a search it returns none. It is called for
	// weights in the forward product only: elsewhere there is no state.
	//
	// Search finds the state of one site: before the first step, from what the weights start with,
	// and then after every so many steps, from what the step has made of them. It is called for
	// several sites at the same time, and must keep nothing anywhere but in the state: after a
	// crash the process is started again and gets the same search once more. All of Next must be
	// written.
	//
	// Prefer [sdk.Stateful] where a program can do it: a search needs Linux, and its process must
	// live as long as the training does. Example: kmeans.
	Searcher = sdk.Searcher
	// SearchInput is what a search is given.
	SearchInput = sdk.SearchInput
)

// Capabilities of optimizers.
type (
	// Pacer is an optimizer with a rate of its own, such as Adafactor, whose rate follows the size
	// of the weights. The host uses it wherever it would use the schedule's: for the direction, for
	// the weight decay and for the correction by CAGE.
	//
	// Rate builds the rate α of this update, a scalar float, at least 0: the host applies x ← x −
	// α·u. in.X is the parameter before weight decay, and in.State the state before Observe; what
	// Observe or Refresh changes cannot be read. in.Rate is the schedule's rate. α should be 0
	// where it is 0, so that warmup, the end of a schedule and the groups of a configuration have
	// their effect. Example: adafactor.
	Pacer = sdk.Pacer

	// Collector is an optimizer that needs sums over all its tensors, such as the norm of the whole
	// gradient or of the way that all of them have come (Prodigy, D-Adaptation).
	//
	// Collect builds scalar floats of one tensor, by name. The host adds up those of each name over
	// all tensors that the optimizer has by the same table of the configuration. The other programs
	// of the same step find the sums in in.Global. As in Rate, in.X is the parameter before weight
	// decay, and in.State the state before Observe. Example: prodigy.
	Collector = sdk.Collector

	// Prober is an optimizer that takes a second gradient, at another point and with the same
	// batch, as sharpness-aware minimization does (SAM), or for the product of the Hessian and a
	// vector, as a difference of two gradients (Sophia-H, AdaHessian).
	//
	// Probe builds the offset p of one tensor from x, where the gradient was taken. If a probe is
	// due, the host takes the gradient at x + p, with all tensors moved at once, before Update. The
	// model at that point is quantized as it is at x, with the same noise; it is then forgotten. As
	// in Collect, in.X is the parameter before weight decay, and in.State the state before Observe.
	// ProbeAt says at which updates of the tensor a probe is due. Example: sam.
	Prober = sdk.Prober

	// Sampler is an optimizer whose second gradient is taken at x, with labels that the host draws
	// from the predictions of the model, as Sophia-G does. There is one second gradient: for a
	// tensor for which this one is ever due, an offset of a [Prober] must never be.
	//
	// SampleAt says at which updates of the tensor it is due. Update has it as in.Probed, times √n,
	// where n is the number of labels, and not clipped: so the mean of its square is the diagonal
	// of the Gauss-Newton matrix of the loss (Liu et al. 2023, arXiv 2305.14342, §2.3). Where
	// labels have weights, n is (Σw)²/Σw². The model is quantized as for Gradient, with the same
	// noise. With a teacher, too, labels are drawn from the student. Example: sophia.
	Sampler = sdk.Sampler

	// Averaged is an optimizer whose result is another point than the one at which it takes
	// gradients, such as an average of the path (schedule-free methods, EMA, SWA).
	//
	// Evaluate builds the tensor to evaluate the model with, and to export, from x, where training
	// is, and the state after an update. Before the first update it must be x. Example:
	// schedule-free.
	Averaged = sdk.Averaged

	// Rounded is an optimizer after whose updates the tensor itself has numbers of fewer bits, as
	// in training in pure bfloat16.
	//
	// RoundTo says what x consists of after an update of t: with [sdk.StoreBFloat16] the host
	// rounds x − α·u, after weight decay and correction by CAGE, to one of the two nearest numbers
	// of bfloat16, at random and so that the mean is what it rounds. What is less than half of the
	// distance of two numbers is then not lost in every update. [sdk.StoreFloat32] leaves x as it
	// is; there are no others. Trained parameters of quantizers that have a constraint are not
	// rounded. Example: adamw-bf16.
	Rounded = sdk.Rounded

	// OpaqueOptimizer is an optimizer that cannot be written as a program, such as one that calls
	// another library or searches. Its own process computes the updates, on memory that it shares
	// with the host. [sdk.ServeOpaqueOptimizer] serves it.
	//
	// State lists the tensors that are kept from step to step for a tensor, in any order. They
	// start at zero; a method that needs others fills them in the first step. Step computes one
	// update. It is called for several tensors at the same time, and must keep nothing anywhere but
	// in the state: after a crash the process is started again and gets the same step once more.
	// All of Direction and Next must be written.
	//
	// Prefer [sdk.Optimizer] where you can: a program runs on every device, is compiled together
	// with the rest of the step, and can be printed and compared. An opaque optimizer costs copies
	// in each step, and its process must live as long as the run does. Example: opaque-adamw.
	OpaqueOptimizer = sdk.OpaqueOptimizer
	// OpaqueStep is one update of one tensor.
	OpaqueStep = sdk.OpaqueStep
)
