// Package export writes trained models in the formats of other programs: Hugging Face
// directories, also in the compressed-tensors layout for vLLM and transformers, and GGUF
// for llama.cpp.
//
// For a quantized weight x, the Q(x) that training used is exported, bit for bit, except
// that −0 counts as 0, since integers have no −0. A weight is taken as the codes and
// scales that its quantizer's program returns ([Grid]), and stored in that form if the
// format can. What was written is read back by separate code (readback.go) and
// compared. A weight that a format cannot hold exactly is refused with the reason, unless
// [Options.Inexact] is set; then the report says how large the difference is.
//
// Each format is a [Format], implemented in a file of its own. An export is complete or
// absent.
package export

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Names of the files that every export has beside those of its format.
const (
	reportFile = "export.json"
	cardFile   = "README.md"
)

// Report says what was exported.
type Report struct {
	Format string `json:"format"`
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"` // total size of the tensors
	// Exact says that every quantized weight was read back as Q(x), bit for bit.
	Exact   bool     `json:"exact"`
	Tensors []Stored `json:"tensors"`
	// Notes list other differences from training.
	Notes []string `json:"notes,omitempty"`
	// Warnings say what programs that load the export will not know.
	Warnings []string `json:"warnings,omitempty"`
}

// Write exports a model to a directory that does not exist yet. The directory is complete
// or absent: see package atomicfile.
func Write(ctx context.Context, format string, to vfs.Path, m *Model, o Options) (*Report, error) {
	f, ok := formats[format]
	if !ok {
		return nil, fmt.Errorf("there is no format %q: want one of %s", format, names(formats))
	}
	to = vfs.On(to.FS, filepath.Clean(to.Name)) // atomicdir makes a directory beside it
	if err := atomicfile.CheckDir(to); err != nil {
		return nil, err
	}
	if err := m.Tokenizer.check(m.Settings.Vocab); err != nil {
		return nil, err
	}
	if _, packs := f.(compressedFormat); o.Activations && !packs {
		return nil, fmt.Errorf("export to %s: the format does not say how activations are quantized: leave --activations out, or --to compressed-tensors", format)
	}
	plan, err := f.Plan(m, o)
	if err != nil {
		return nil, fmt.Errorf("export to %s: %w", format, err)
	}
	report := &Report{Format: format, Path: to.Name, Exact: true, Tensors: plan.Tensors(),
		Notes:    slices.Concat(m.Notes, plan.Notes()),
		Warnings: slices.Concat(m.Warnings, m.Tokenizer.Warnings),
	}
	err = atomicfile.WriteDir(to, func(dir vfs.Path) error {
		if err := plan.Write(ctx, dir); err != nil {
			return err
		}
		if err := report.compare(ctx, plan, &source{Model: m, latent: o.Latent}, dir, o.Inexact); err != nil {
			return err
		}
		card, err := m.Card.render(report, m)
		if err != nil {
			return err
		}
		return errors.Join(
			atomicfile.WriteJSON(dir.Join(reportFile), report),
			atomicfile.WriteBytes(dir.Join(cardFile), card))
	})
	if err != nil {
		return nil, err
	}
	return report, nil
}

// compare reads everything back and notes how it differs from what was to be exported. Quantized
// weights are equal, unless a difference is allowed.
func (r *Report) compare(ctx context.Context, plan Plan, source *source, dir vfs.Path, inexact bool) error {
	left := map[string]int{}
	for i, t := range r.Tensors {
		left[t.Name] = i
		r.Bytes += t.Bytes
	}
	err := plan.Read(dir, func(name string, values []float32) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		i, ok := left[name]
		if !ok {
			return nil // such as the factors of rotary positions, which are no parameter
		}
		delete(left, name)
		t := &r.Tensors[i]
		w, err := source.weight(t.part.param)
		if err != nil {
			return err
		}
		want := pick(t.part, w.values, t.part.columns())
		if len(values) != len(want) {
			return fmt.Errorf("%d numbers, want %d", len(values), len(want))
		}
		for i, v := range values {
			d := math.Abs(float64(v) - float64(want[i]))
			if d > t.Difference || math.IsNaN(d) {
				t.Difference = d
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the export back: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("reading the export back: %s is missing", names(left))
	}
	var different []string
	for _, t := range r.Tensors {
		if t.Quantized && t.Difference != 0 {
			different = append(different, t.Name)
		}
	}
	r.Exact = len(different) == 0
	if r.Exact || inexact {
		return nil
	}
	return fmt.Errorf("what was written does not read back as Q(x): %s; this is a mistake of cage", strings.Join(different, ", "))
}

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
	// Notes lists what there is to say that is not about a tensor, each in a sentence.
	Notes() []string
	// Write writes the files into a directory.
	Write(ctx context.Context, dir vfs.Path) error
	// Read calls each with the numbers that the written files stand for, under the names
	// that Tensors gives. It shares no code with Write.
	Read(dir vfs.Path, each func(name string, values []float32) error) error
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
	// Floats allows quantized weights to be stored as floats that the format cannot pack.
	Floats bool
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

var formats = map[string]Format{
	"hf":                 hubFormat{},
	"compressed-tensors": compressedFormat{},
	"gguf":               ggufFormat{},
}

// Formats lists the names of the formats.
func Formats() []string { return slices.Sorted(maps.Keys(formats)) }

// refusals are the reasons for which tensors cannot be stored, each with the tensors.
type refusals struct {
	reasons []string
	tensors map[string][]string
	// quantized and plain report whether there are quantized weights among them, and others.
	quantized, plain bool
}

func (r *refusals) add(tensor string, quantized bool, err error) {
	reason := err.Error()
	if r.tensors == nil {
		r.tensors = map[string][]string{}
	}
	if r.tensors[reason] == nil {
		r.reasons = append(r.reasons, reason)
	}
	r.tensors[reason] = append(r.tensors[reason], tensor)
	r.quantized, r.plain = r.quantized || quantized, r.plain || !quantized
}

// list has a line for each of the tensors, up to a few, and the reasons.
func (r *refusals) list() string {
	var text strings.Builder
	for _, reason := range r.reasons {
		list := r.tensors[reason]
		fmt.Fprintf(&text, "\n  %s", list[0])
		if len(list) > 1 {
			fmt.Fprintf(&text, " and %d more", len(list)-1)
		}
		fmt.Fprintf(&text, ":\n    %s", strings.ReplaceAll(reason, "\n", "\n    "))
	}
	return text.String()
}

// err is one error about all of them, with what works for quantized weights, and for others; nil
// where there are none.
func (r *refusals) err(quantized string) error {
	if len(r.reasons) == 0 {
		return nil
	}
	text := "these tensors cannot be stored exactly" + r.list()
	if r.quantized {
		text += "\n" + quantized
	}
	if r.plain {
		text += "\n--dtype f32 stores the weights that are not packed as they are"
	}
	return errors.New(text)
}
