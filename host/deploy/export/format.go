package export

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"
)

// Format is a format of exports. To add one, implement this interface in a new file, and
// add it to the list of formats.
type Format interface {
	// Plan says what each tensor becomes, or why a weight cannot be stored. It reads all
	// weights and writes nothing.
	Plan(m *Model, o Options) (Plan, error)
}

// Plan is an export that has been found to be possible.
type Plan interface {
	// Tensors lists what is written, in any order.
	Tensors() []Stored
	// Write writes the files into a directory.
	Write(ctx context.Context, dir vfs.Path) error
	// Read calls each with the numbers that the written files stand for, under the names
	// that Tensors gives. It shares no code with Write.
	Read(dir vfs.Path, each func(name string, values []float32) error) error
}

// noter is a plan with something to say that is not about a tensor.
type noter interface {
	// Notes lists it, each in a sentence.
	Notes() []string
}

// Options say how to export.
type Options struct {
	// Type is the type in which quantized weights are stored; "" means the smallest that
	// is exact.
	Type string
	// Float is the type of all other tensors: f32, bf16 or f16. In the format hf it is
	// the type of quantized weights, too.
	Float string
	// Latent exports the weights that the optimizer keeps, without the quantizer.
	Latent bool
	// Inexact allows a quantized weight to become something other than Q(x), and a
	// tokenizer to be stored that will give other ids for some texts.
	Inexact bool
	// Activations makes programs that load the export quantize the inputs of layers as
	// training did. Only compressed-tensors can express that.
	Activations bool
	// ShardSize is the largest size, in bytes, of a file of tensors; 0 means 5 GB.
	ShardSize int64
}

// Stored is a tensor of an export.
type Stored struct {
	Name  string `json:"name"`      // name in the export
	Param string `json:"parameter"` // parameter of the model
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
	// Quantized says that it holds Q(x).
	Quantized bool `json:"quantized"`
	// Note says why it is not packed although it is quantized.
	Note string `json:"note,omitempty"`
	// Difference is the largest difference between a number that was read back and that
	// of the model; 0 means that all are equal.
	Difference float64 `json:"difference"`

	part part
}

// formats are all formats by the name that --to gives.
var formats = map[string]Format{
	"hf":                 hubFormat{},
	"compressed-tensors": compressedFormat{},
	"gguf":               ggufFormat{},
}

// Formats lists the names of the formats.
func Formats() []string { return slices.Sorted(maps.Keys(formats)) }

// formatOf finds a format by name.
func formatOf(name string) (Format, error) {
	if f, ok := formats[name]; ok {
		return f, nil
	}
	return nil, fmt.Errorf("there is no format %q: want one of %s", name, strings.Join(Formats(), ", "))
}

// refusals are the reasons for which tensors cannot be stored, each with the tensors.
type refusals struct {
	reasons []string
	tensors map[string][]string
}

func (r *refusals) add(tensor string, err error) {
	reason := err.Error()
	if r.tensors == nil {
		r.tensors = map[string][]string{}
	}
	if r.tensors[reason] == nil {
		r.reasons = append(r.reasons, reason)
	}
	r.tensors[reason] = append(r.tensors[reason], tensor)
}

// err is one error about all of them, with what would work; nil where there are none.
func (r *refusals) err(works string) error {
	if len(r.reasons) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString("these tensors cannot be stored exactly")
	for _, reason := range r.reasons {
		list := r.tensors[reason]
		fmt.Fprintf(&text, "\n  %s", list[0])
		if len(list) > 1 {
			fmt.Fprintf(&text, " and %d more", len(list)-1)
		}
		fmt.Fprintf(&text, ":\n    %s", strings.ReplaceAll(reason, "\n", "\n    "))
	}
	return fmt.Errorf("%s\n%s", text.String(), works)
}
