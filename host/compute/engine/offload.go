package engine

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
)

// This file keeps tensors in the memory of the machine that a GPU copies from and to by itself, without the processor: pinned memory. A
// graph says of each where its elements are, and when they are fetched; XLA makes the copies.

// pinnedHost is the name of that memory in PJRT's C interface and in programs.
const pinnedHost = "pinned_host"

// A PinnedError says that a device cannot keep tensors in the machine's memory.
type PinnedError struct{ Reason string }

// Error implements error.
func (e *PinnedError) Error() string {
	return fmt.Sprintf("tensors cannot be kept in the machine's memory: %s", e.Reason)
}

// inHost is the note of an input whose elements are in the machine's memory: those of this replica's rows, or of all.
type inHost struct{ rows bool }

// fetchedAs is the note of such an input that has been fetched.
type fetchedAs struct{ whole *graph.Node }

// hostOutput is the note of an output that is kept there.
type hostOutput struct{}

// FromHost notes of an input, which has [Spec.Host], that it is in the machine's memory. Nothing may read it but [Fetch]. rows says that it has the
// rows of one replica.
func FromHost(x *graph.Node, rows bool) *graph.Node {
	Note(x, inHost{rows})
	return x
}

// InHost reports whether a node is one of [FromHost].
func InHost(x *graph.Node) bool {
	_, ok := NoteOf[inHost](x)
	return ok
}

// Fetch returns a node of [FromHost] in the memory of the device, the whole as [Gather] returns it; any other node as it is. It is
// copied after some other nodes have been computed, so that it takes no memory before.
func Fetch(x *graph.Node, after ...*graph.Node) *graph.Node {
	note, ok := NoteOf[inHost](x)
	if !ok {
		return x
	}
	from := x
	if len(after) > 0 {
		from = graph.OptimizationBarriers(append([]*graph.Node{x}, after...)...)[0]
	}
	whole := toDevice.call(from, graph.Identity)
	if note.rows {
		whole = Gather(whole)
	}
	Note(x, fetchedAs{whole})
	return whole
}

// Fetched returns what the last call of [Fetch] returned for a node.
func Fetched(x *graph.Node) *graph.Node {
	if note, ok := NoteOf[fetchedAs](x); ok {
		return note.whole
	}
	return Fetch(x)
}

// ToHost returns a node as an output that is kept in the machine's memory. Rows of [Sharded] stay those of this replica.
func ToHost(x *graph.Node) *graph.Node {
	out := toHost.call(x, graph.Identity)
	CopyNotes(out, x)
	Note(out, hostOutput{})
	return out
}

// isHostOutput reports whether a node was made by [ToHost].
func isHostOutput(x *graph.Node) bool {
	_, ok := NoteOf[hostOutput](x)
	return ok
}

// Offload moves a buffer to the machine's memory, each part to that of the machine whose GPU has it.
func Offload(b *Buffer) error {
	if err := b.usable(); err != nil || b.host {
		return err
	}
	if !b.device.options.Offload {
		return &PinnedError{"the device was not opened for it"}
	}
	for i, part := range *b.data.Load() {
		if err := catch(func() error { return moveToHost(b.device.backend, part, i) }); err != nil {
			return advisedError{fmt.Errorf("moving a buffer of shape %s to the machine's memory: %w", b.shape, err)}
		}
	}
	b.host = true
	return nil
}

// placeInputs writes into a program which of its inputs are in the machine's memory.
func placeInputs(builder compute.Builder, inputs []Spec) error {
	if !slices.ContainsFunc(inputs, func(s Spec) bool { return s.Host }) {
		return nil
	}
	list, err := mainInputs(builder)
	if err != nil {
		return err
	}
	for i, spec := range inputs {
		if spec.Host {
			setAttribute(list.Index(i), memoryKind, pinnedHost)
		}
	}
	return nil
}

// memoryKind is the attribute of an input or output with the memory that has its elements.
const memoryKind = "mhlo.memory_kind"

// placingBuilder is a builder that writes into its program, when that is complete, which outputs are in the machine's memory.
type placingBuilder struct {
	compute.Builder
	outputs []bool
}

// Compile implements compute.Builder.
func (b *placingBuilder) Compile() (compute.Executable, error) {
	if slices.Contains(b.outputs, true) {
		list, err := mainValues(b.Builder, "Outputs")
		if err != nil {
			return nil, err
		}
		for i, host := range b.outputs {
			if host {
				setAttribute(list.Index(i), memoryKind, pinnedHost)
			}
		}
	}
	return b.Builder.Compile()
}
