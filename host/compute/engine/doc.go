// Package engine opens devices, makes executables of functions on slices on the CPU
// ([Device.Host]) and of functions that build graphs on accelerators ([Device.Compile]),
// copies data between host slices and device buffers, and runs the executables. It is independent
// of models and training.
//
// Functions that build graphs panic on a mistake, as package graph does; all other code returns
// errors. [Device.Compile] and [Executable.Run] turn every panic that reaches them into a
// [*ExecutableError] that names the executable.
//
// # Buffers and donation
//
// A [Buffer] belongs to one device and is freed by [Buffer.Finalize]; garbage collection may be too
// late for a device with little memory. A buffer given to [Executable.Run] with its donate flag set
// is gone when Run returns, even if the executable failed: its memory may have become an output.
// Only errors found before the executable starts (such as a wrong shape) leave all buffers intact.
//
// On the CPU a function says which output gets the memory of a donated input ([Function.Reuses]).
// XLA reuses that of inputs that were declared as donated when the executable was compiled, see
// [Spec].
//
// # Replicas
//
// A device opened with a Count above one consists of that many replicas, each on a GPU of its own,
// and every executable runs on all of them: the program is compiled once, and each replica uses its
// own copy of every buffer. [Upload] makes equal copies; [UploadSharded] gives each replica its
// part. A graph sees the data of one replica; [graph.AllReduce] and the other collectives are its
// only access to the rest. An output must be equal on all replicas unless it is [Sharded]: values
// that depend on a sharded input must pass through a collective. A device with one replica runs the
// same graphs without collectives.
//
// # Precision and reproducibility
//
// [Element] lists the types of buffers. If the [Options.Precision] of a device is bfloat16, the
// operands of products built with [DotGeneral] are rounded to bfloat16; all other products keep
// float32 operands.
//
// On the CPU device the same executable with the same inputs gives the same bits, whatever the
// number of threads. Other builds and processors round differently: [Device.BuildInfo] describes a
// device's arithmetic, so that a checkpoint can record it.
package engine
