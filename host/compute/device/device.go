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
func Allocators() []Allocator { return []Allocator{DefaultAllocator, "bfc", "cuda_async", "platform"} }

// MemoryFraction is the default for the largest fraction of a GPU's memory that XLA uses.
const MemoryFraction = 0.75

// Attention is a way to compute attention.
type Attention string

// The ways to compute attention.
const (
	AutoAttention  Attention = "auto"  // FusedAttention if a trial shows that its results are right, otherwise PlainAttention
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
	FloatProducts   Products = "float"   // of the quantized values, as floats
	IntegerProducts Products = "integer" // of 8-bit codes with 32-bit sums, if both matrices have one scale per row
	FormerBlocks    Products = "fp4"     // a former experiment on some GPUs; now equivalent to FloatProducts
)

// Shard selects the tensors that are sharded by rows among several GPUs instead of replicated.
type Shard string

// The levels of sharding. Each includes the one before.
const (
	ShardNone      Shard = "none"      // batches only
	ShardStates    Shard = "states"    // also the states of optimizers, and mean gradients
	ShardGradients Shard = "gradients" // also the sums of gradients over micro-batches
	ShardFull      Shard = "full"      // also parameters and their quantized values, which are all-gathered for each product
)

// Kernels is a way to compute programs of plugins.
type Kernels string

// The ways to compute programs of plugins.
const (
	AutoKernels  Kernels = "auto"  // on GPUs FusedKernels if a trial shows that their results are right, otherwise GraphKernels
	FusedKernels Kernels = "fused" // a program that fits into one kernel becomes one
	GraphKernels Kernels = "graph" // graph operations, which the compiler fuses as it likes; on the CPU for tests
	BodyKernels  Kernels = "body"  // like FusedKernels, but computes the body of each call: for tests, on any device
)
