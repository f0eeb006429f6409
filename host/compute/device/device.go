// Package device defines the names of device settings: the kinds of devices and the ways to compute
// on them. Package host/compute/engine opens devices; this package is separate so that code that
// only reads a configuration does not link a tensor engine.
package device

// Kinds of devices.
const (
	// CPU runs on the processor and needs no further installation.
	CPU = "cpu"
	// CUDA runs on an NVIDIA GPU with XLA through a PJRT plugin. It is available in builds with the
	// tag "cuda".
	CUDA = "cuda"
)

// Allocator names a GPU memory allocator of XLA.
type Allocator string

// DefaultAllocator leaves the choice to XLA.
const DefaultAllocator Allocator = "default"

// Allocators lists XLA's GPU memory allocators.
func Allocators() []Allocator {
	return []Allocator{DefaultAllocator, "bfc", "cuda_async", "platform"}
}

// MemoryFraction is the default limit on the fraction of a GPU's memory that XLA uses.
const MemoryFraction = 0.75

// Attention names an implementation of attention.
type Attention string

// The implementations of attention.
const (
	AutoAttention  Attention = "auto"  // "fused" if a trial gives right results, otherwise "plain"
	FusedAttention Attention = "fused" // one operation of the device; an error if it has none
	PlainAttention Attention = "plain" // products and a softmax
)

// Precision is the element type of the operands of matrix products.
type Precision string

// The supported precisions.
const (
	Float32  Precision = "float32"
	BFloat16 Precision = "bfloat16"
)

// Products names a method to multiply two quantized matrices.
type Products string

// The methods to multiply two quantized matrices.
const (
	FloatProducts Products = "float" // of the quantized values, as floats
	// IntegerProducts multiplies 8-bit codes and sums in 32-bit integers, if both matrices have one
	// scale per row.
	IntegerProducts Products = "integer"
)

// Shard selects the tensors that are sharded by rows among several GPUs instead of replicated.
type Shard string

// The levels of sharding. Each includes the one before. Sharded parameters and values are
// all-gathered before each product.
const (
	ShardNone      Shard = "none"      // batches only
	ShardStates    Shard = "states"    // also the states of optimizers, and mean gradients
	ShardGradients Shard = "gradients" // also the sums of gradients over micro-batches
	ShardFull      Shard = "full"      // also parameters and quantized values
)

// Kernels names a method to compute plugin programs.
type Kernels string

// The methods to compute plugin programs.
const (
	AutoKernels  Kernels = "auto"  // on GPUs "fused" if a trial gives right results, otherwise "graph"
	FusedKernels Kernels = "fused" // a program that fits into one kernel becomes one
	GraphKernels Kernels = "graph" // graph operations, which the compiler fuses; on the CPU for tests
	BodyKernels  Kernels = "body"  // "fused", but computes the body of each call: for tests
)
