package sdk

import "github.com/cage-qat/cage/sdk/program"

// Optional interfaces of quantizers that few algorithms need. Each comment names an example in
// examples/plugins. An interface is added only when two algorithms need it.
type (
	// Sharer is a [Trainable] quantizer with parameters that several sites share, such as a
	// rotation of rows (SpinQuant) or one codebook for a whole model.
	//
	// Shared returns the name under which sites share the trained parameter p; empty means that it is
	// not shared. All sites that return the same name, whatever their plugins, share one parameter,
	// whose gradient is the sum of theirs: shape and constraint must be the same for all. Its initial
	// value is that of InitTrained for the first of these sites; weights precede activations.
	// Example: spin.
	Sharer interface {
		Shared(p string, site Site) string
	}

	// Constrained is a [Trainable] quantizer whose trained parameters are constrained to a set,
	// such as the orthogonal matrices or the positive numbers.
	//
	// Constrain builds the point of the set that replaces v, the value of the trained parameter p
	// after an update, in the shape of v. It returns v itself for a parameter without a constraint.
	// The values of InitTrained must already be in the set. Example: spin.
	Constrained interface {
		Constrain(b *program.Builder, p string, v program.Value, site Site) (program.Value, error)
	}

	// Maximal is a [Stateful] quantizer some of whose state tensors are maxima, such as the
	// largest magnitudes of the last steps.
	//
	// Maximum reports whether the state tensor s of an activation is reduced over micro-batches and
	// replicas by the elementwise maximum of Next instead of the mean. Example: delayed.
	Maximal interface {
		Maximum(s string, site Site) bool
	}

	// Searcher is a quantizer of weights with state that no program can compute: a codebook by
	// k-means, codes by beam search (AQLM) or by a trellis (QTIP). The plugin's own process
	// computes it, in memory that it shares with the host. Quantize is still a program, which reads
	// [Site.State]: codes and codebooks to decode, or Q(x) itself and a mask. Gradients, the
	// correction, evaluation and export therefore work as for any other quantizer.
	//
	// SearchState lists the state tensors of a site, in any order, and returns the number of steps
	// between searches, at least 1. For a site without a search it returns no tensors. It is called
	// for weights in the forward product only: all other sites have no state.
	//
	// Search computes the state of one site: before the first step from the initial weights, and
	// then at that interval from the updated weights. It reads trained parameters. It is called for
	// several sites concurrently, and must not keep data outside the state: after a crash the process
	// is restarted and the same search is requested again. All of Next must be written.
	//
	// Prefer [Stateful] where a program suffices: a search needs Linux, and its process must
	// live as long as the training run. Example: kmeans.
	Searcher interface {
		SearchState(site Site) (state []StateTensor, every int, err error)
		Search(in SearchInput, site Site) error
	}
)

// Optional interfaces of optimizers that few algorithms need. In Rate, Collect and Probe, in.X is
// the parameter before weight decay, and in.State the state before Observe.
type (
	// Pacer is an optimizer with its own learning rate, such as Adafactor, whose rate is relative to
	// the scale of the weights. The host uses it instead of the schedule's rate everywhere: for the
	// direction, for the weight decay and for the correction by CAGE.
	//
	// Rate builds the rate α of this update, a scalar float, at least 0: the host applies x ← x −
	// α·u. in.Rate is the schedule's rate. α should be 0 if in.Rate is 0, so that warmup, decay and
	// the rate factors of parameter groups have their effect. Example: adafactor.
	Pacer interface {
		Rate(b *program.Builder, in UpdateInput, t Tensor) (program.Value, error)
	}

	// Collector is an optimizer that needs sums over all its tensors, such as the global gradient
	// norm, or the distance of all tensors from their initial values (Prodigy, D-Adaptation).
	//
	// Collect builds named scalar floats from one tensor. The host sums the values of each name
	// over all tensors that the same table of the configuration assigns to the optimizer. The other
	// programs of the step find the sums in in.Global. Example: prodigy.
	Collector interface {
		Collect(b *program.Builder, in UpdateInput, t Tensor) (State, error)
	}

	// Prober is an optimizer that takes a second gradient on the same batch at another point, as
	// sharpness-aware minimization does (SAM), or to compute Hessian-vector products as differences
	// of gradients (Sophia-H, AdaHessian).
	//
	// Probe builds the offset p of one tensor from x, where the gradient was taken. If a probe is
	// due, the host takes the gradient at x + p, with all tensors moved at once, before Update. The
	// model at that point is quantized in the same way, with the same noise; the point is then
	// discarded. ProbeAt returns the updates at which a probe is due. Example: sam.
	Prober interface {
		Probe(b *program.Builder, in UpdateInput, t Tensor) (program.Value, error)
		ProbeAt(t Tensor) Due
	}

	// Sampler is an optimizer whose second gradient is taken at x, with labels that the host draws
	// from the predictions of the model, as Sophia-G does. There is only one second gradient: a
	// tensor with samples must have no probes of a [Prober].
	//
	// SampleAt returns the updates at which a sample is due. Update reads the gradient as in.Probed,
	// multiplied by √n, where n is the number of labels, and not clipped: so the mean of its square
	// is the diagonal of the Gauss-Newton matrix of the loss (Liu et al. 2023, arXiv 2305.14342,
	// §2.3). For weighted labels, n is (Σw)²/Σw². The model is quantized as for Gradient, with
	// the same noise. In distillation, too, labels are drawn from the student. Example: sophia.
	Sampler interface {
		SampleAt(t Tensor) Due
	}

	// Averaged is an optimizer whose result differs from the point at which it takes gradients, such
	// as an average of the iterates (schedule-free methods, EMA, SWA).
	//
	// Evaluate builds the tensor for evaluation and export from x and the state after an update.
	// Before the first update it must be x. Example: schedule-free.
	Averaged interface {
		Evaluate(b *program.Builder, x program.Value, state State, t Tensor) (program.Value, error)
	}

	// Rounded is an optimizer whose updates round the tensor itself to fewer bits, as in training in
	// pure bfloat16.
	//
	// RoundTo returns the type to which x is rounded after an update of t. With [StoreBFloat16]
	// the host stochastically rounds x − α·u, after weight decay and correction by CAGE, to one of
	// the two adjacent bfloat16 numbers, so that the mean is the unrounded value and updates of
	// less than half an ulp are not always lost. [StoreFloat32] means no rounding; all other
	// types are invalid. Constrained parameters of quantizers are not rounded. Example: adamw-bf16.
	Rounded interface {
		RoundTo(t Tensor) Storage
	}

	// OpaqueOptimizer is an optimizer that cannot be written as a program, such as one that calls
	// another library. Its own process computes the updates, in memory that it shares with the host.
	// [ServeOpaqueOptimizer] serves it.
	//
	// State lists the state tensors of a parameter, in any order; they start at zero. Step computes
	// one update. It is called for several tensors concurrently, and must not keep data outside the
	// state: after a crash the process is restarted and the same step is requested again. All of
	// Direction and Next must be written.
	//
	// Prefer [Optimizer] if possible: a program runs on every device and is compiled together
	// with the rest of the step. An opaque optimizer costs copies in each step, and its process
	// must live as long as the run. Example: opaque-adamw.
	OpaqueOptimizer interface {
		Describe() Description
		State(t Tensor) ([]StateTensor, error)
		Step(in OpaqueStep, t Tensor) error
	}
)

// SearchInput is the input of a search for one weight. Tensors are in row-major order. X, Trained
// and State are read-only memory: writing to them faults.
type SearchInput struct {
	// X is the weight.
	X []float32
	// Trained holds the trained parameters, if the quantizer is [Trainable].
	Trained map[string][]float32
	// State is the state that the previous search wrote to Next; it is zero in the first search.
	State map[string][]float32
	// Step is the number of completed steps: 0 in the first search. Steps is the total number of
	// steps of the run.
	Step, Steps int
	// Next is the buffer for the new state. Its initial content is unspecified.
	Next map[string][]float32
}
