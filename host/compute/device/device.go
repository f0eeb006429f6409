// Package device names what a configuration can ask of a device: its kind, and how it is to compute. The names have no
// code: package host/compute/engine opens devices, and whoever only reads a configuration needs no tensor engine.
package device

// Kinds of devices.
const (
	// CPU runs on the processor with GoMLX's Go backend; nothing has to be installed.
	CPU = "cpu"
	// CUDA runs on an NVIDIA GPU with XLA through a PJRT plugin; it exists in builds with the tag "cuda".
	CUDA = "cuda"
)

// Allocator is a way to allocate the memory of a GPU.
type Allocator string

// DefaultAllocator leaves the choice to XLA.
const DefaultAllocator Allocator = "default"

// Allocators lists the allocators that XLA has.
func Allocators() []Allocator { return []Allocator{DefaultAllocator, "bfc", "cuda_async", "platform"} }

// MemoryFraction is the share of a GPU's memory that XLA takes at most, unless it is told another one.
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
	FloatProducts   Products = "float"   // of values, as they are
	IntegerProducts Products = "integer" // of codes, in 8 bits with sums in 32, if both have one scale for each row
	FormerBlocks    Products = "fp4"     // was an experiment on some GPUs; now as FloatProducts
)

// Shard says what several GPUs divide among them, each keeping its rows, in the place of having all of it on each.
type Shard string

// What several GPUs can divide. Each divides what the one before it does, and more.
const (
	ShardNone      Shard = "none"      // batches only
	ShardStates    Shard = "states"    // also the states of optimizers, and mean gradients
	ShardGradients Shard = "gradients" // also the sums of gradients over micro-batches
	ShardFull      Shard = "full"      // also parameters and their quantized values, which are gathered where a product reads them
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
