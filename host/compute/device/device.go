// Package device defines the names of device settings: kinds of devices and ways to compute. It is
// separate from package host/compute/engine, which opens devices, so that code that only reads a
// configuration does not link a tensor engine.
package device

// Kinds of devices.
const (
	// CPU runs on the processor with GoMLX's Go backend, without further installation.
	CPU = "cpu"
	// CUDA runs on an NVIDIA GPU with XLA through a PJRT plugin; it exists in builds with the tag
	// "cuda".
	CUDA = "cuda"
)

// Allocator is a way to allocate the memory of a GPU.
type Allocator string

// DefaultAllocator leaves the choice to XLA.
const DefaultAllocator Allocator = "default"

// Allocators lists the allocators that XLA has.
func Allocators() []Allocator {
	return []Allocator{DefaultAllocator, "bfc", "cuda_async", "platform"}
}

// MemoryFraction is the default for the largest fraction of a GPU's memory that XLA uses.
const MemoryFraction = 0.75

// Attention is a way to compute attention.
type Attention string

// The ways to compute attention.
const (
	AutoAttention  Attention = "auto"  // "fused" if a trial gives right results, otherwise "plain"
	FusedAttention Attention = "fused" // one operation of the device; an error if it has none
	PlainAttention Attention = "plain" // products and a softmax
)

// Precision is an element type of the operands of matrix products.
type Precision string

// The precisions that a device can have.
const (
	Float32  Precision = "float32"
	BFloat16 Precision = "bfloat16"
)

// Products is a way to multiply two quantized matrices.
type Products string

// The ways to multiply two quantized matrices.
const (
	FloatProducts Products = "float" // of the quantized values, as floats
	// IntegerProducts multiplies 8-bit codes with 32-bit sums, if both matrices have one scale per
	// row.
	IntegerProducts Products = "integer"
	FormerBlocks    Products = "fp4" // was an experiment on some GPUs; now like FloatProducts
)

// Shard selects the tensors that are sharded by rows among several GPUs instead of replicated.
type Shard string

// The levels of sharding. Each includes the one before. Sharded parameters and values are
// all-gathered for each product.
const (
	ShardNone      Shard = "none"      // batches only
	ShardStates    Shard = "states"    // also the states of optimizers, and mean gradients
	ShardGradients Shard = "gradients" // also the sums of gradients over micro-batches
	ShardFull      Shard = "full"      // also parameters and quantized values
)

// Kernels is a way to compute programs of plugins.
type Kernels string

// The ways to compute programs of plugins.
const (
	AutoKernels  Kernels = "auto"  // on GPUs "fused" if a trial gives right results, otherwise "graph"
	FusedKernels Kernels = "fused" // a program that fits into one kernel becomes one
	GraphKernels Kernels = "graph" // graph operations, which the compiler fuses; on the CPU for tests
	BodyKernels  Kernels = "body"  // "fused", but computes the body of each call: for tests
)
