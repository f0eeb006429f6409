// Package export writes trained models in the formats of other programs: Hugging Face directories,
// plain or in the compressed-tensors layout for vLLM and transformers, and GGUF for llama.cpp.
//
// For a quantized weight x, the export contains the Q(x) of training, bit for bit, except that −0
// counts as 0, because integers have no −0. A weight is represented by the codes and scales that
// its quantizer's program returns ([Grid]), and stored in that form if the format supports it. The
// export is read back by separate code (readback.go) and compared. It is an error if a format
// cannot represent a weight exactly, unless [Options.Inexact] is set; then the report contains the
// difference.
//
// Each format is a [Format], implemented in its own file. An export is complete or absent.
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

// Names of the files that every export has besides those of its format.
const (
	reportFile = "export.json"
	cardFile   = "README.md"
)

// Report describes an export.
type Report struct {
	Format string `json:"format"`
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"` // total size of the tensors
	// Exact says that every quantized weight was read back as Q(x), bit for bit.
	Exact   bool     `json:"exact"`
	Tensors []Stored `json:"tensors"`
	// Notes list further differences from training.
	Notes []string `json:"notes,omitempty"`
	// Warnings list settings that programs loading the export will not know.
	Warnings []string `json:"warnings,omitempty"`
}

// Write exports a model to a directory that must not exist yet. The directory is complete or
// absent: see package atomicfile.
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

// compare reads everything back and records the differences from the model. Quantized weights must
// be equal, unless inexact is set.
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
			return nil // such as the factors of rotary positions, which are not a parameter
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
	// Plan determines how each tensor is stored, or returns why a weight cannot be stored. It reads
	// all weights and writes nothing.
	Plan(m *Model, o Options) (Plan, error)
}

// Plan is an export that is known to be possible.
type Plan interface {
	// Tensors lists the tensors to be written, in any order.
	Tensors() []Stored
	// Notes returns remarks that are not about a single tensor, as sentences.
	Notes() []string
	// Write writes the files into a directory.
	Write(ctx context.Context, dir vfs.Path) error
	// Read calls each with the numbers that the written files represent, under the names in
	// Tensors. It shares no code with Write.
	Read(dir vfs.Path, each func(name string, values []float32) error) error
}

// Options are the options of [Write].
type Options struct {
	// Type is the type in which quantized weights are stored; "" means the smallest exact one.
	Type string
	// Float is the type of all other tensors: f32, bf16 or f16. In the format hf it is also the
	// type of quantized weights.
	Float string
	// Latent exports the unquantized weights that the optimizer updates.
	Latent bool
	// Inexact allows quantized weights to differ from Q(x), and a tokenizer that gives other ids
	// for some texts.
	Inexact bool
	// Floats allows quantized weights that the format cannot pack to be stored as floats.
	Floats bool
	// Activations makes programs that load the export quantize the inputs of layers as in training.
	// Only compressed-tensors supports this.
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
	// Quantized says whether it holds Q(x).
	Quantized bool `json:"quantized"`
	// Note says why a quantized tensor is not packed.
	Note string `json:"note,omitempty"`
	// Difference is the largest difference between a number read back and the number in the model;
	// 0 means that all are equal.
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

// refusals collects the reasons why tensors cannot be stored, and for each the tensors.
type refusals struct {
	reasons []string
	tensors map[string][]string
	// quantized and plain report whether quantized and other weights are among them.
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

// list returns for each reason a line with the first tensor and the number of further ones, and the
// reason.
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

// err returns one error for all tensors, with hints for quantized and for other weights; nil if
// there are none.
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
