// Package export writes trained models in the formats of other programs: Hugging Face directories,
// plain, in the compressed-tensors layout for vLLM and transformers or in that of MLX, and GGUF for
// llama.cpp.
//
// For a quantized weight x, the export contains the Q(x) of training, bit for bit, except that −0
// counts as 0, because integers have no −0. A weight is represented by the codes and scales that
// its quantizer's program returns ([Grid]), and stored in that form if the format supports it.
// Separate code (readback.go) reads the export back and compares it. It is an error if a format
// cannot represent a weight exactly, unless [Options.Inexact] is set; then the report contains the
// difference.
//
// Each format is a function in its own file that makes a [Plan]. If an export fails, its directory
// does not exist.
package export

import (
	"context"
	"crypto/sha256"
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

// Names of the files that every export contains in addition to the files of its format.
const (
	reportFile = "export.json"
	cardFile   = "README.md"
)

// Report describes an export.
type Report struct {
	Format string `json:"format"`
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"` // total size of the tensors
	// Exact reports whether all quantized weights were read back as Q(x), bit for bit.
	Exact   bool     `json:"exact"`
	Tensors []Stored `json:"tensors"`
	// Notes lists further differences from training.
	Notes []string `json:"notes,omitempty"`
	// Warnings lists settings that programs loading the export will not know.
	Warnings []string `json:"warnings,omitempty"`
}

// Write exports a model to a directory that must not exist yet. If Write fails, the directory does
// not exist; see package atomicfile.
func Write(ctx context.Context, format string, to vfs.Path, m *Model, o Options) (*Report, error) {
	makePlan, ok := formats[format]
	if !ok {
		return nil, fmt.Errorf("there is no format %q: want one of %s", format, names(formats))
	}
	to = vfs.On(to.FS, filepath.Clean(to.Name)) // a temporary directory is made beside it
	if err := atomicfile.CheckDir(to); err != nil {
		return nil, err
	}
	if err := m.Tokenizer.check(m.Settings.Vocab); err != nil {
		return nil, err
	}
	if o.Embedding != "" && format != "gguf" {
		return nil, fmt.Errorf("export to %s: the type of embeddings is for gguf", format)
	}
	plan, err := makePlan(m, o)
	if err != nil {
		return nil, fmt.Errorf("export to %s: %w", format, err)
	}
	report := &Report{Format: format, Path: to.Name, Exact: true, Tensors: plan.Tensors,
		Notes:    slices.Concat(m.Notes, plan.Notes),
		Warnings: slices.Concat(m.Warnings, m.Tokenizer.Warnings),
	}
	if err := report.compareInputs(m, plan); err != nil {
		return nil, err
	}
	err = atomicfile.WriteDir(to, func(dir vfs.Path) error {
		if err := plan.Write(ctx, dir); err != nil {
			return err
		}
		read := func(each func(string, []float32) error) error { return plan.Read(dir, each) }
		source := &source{Model: m, latent: o.Latent}
		if err := report.compare(ctx, read, source, o.Inexact); err != nil {
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

// compareInputs warns of layers whose inputs are quantized in the run only.
func (r *Report) compareInputs(m *Model, plan *Plan) error {
	var layers []string
	for _, t := range plan.Tensors {
		if m.Activation == nil || plan.Inputs[t.Name] {
			continue
		}
		a, err := m.Activation(t.Param)
		if err != nil {
			return err
		}
		if a != nil {
			layers = append(layers, t.Name)
		}
	}
	if len(layers) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the run quantizes activations, but programs that "+
			"load the export do not quantize the inputs of %d layers: %s, …", len(layers), layers[0]))
	}
	return nil
}

// compare reads all tensors back and records how they differ from the model. It is an error if a
// quantized weight differs, unless inexact is set.
func (r *Report) compare(ctx context.Context, read func(each func(string, []float32) error) error,
	source *source, inexact bool) error {
	missing := map[string]int{} // indices of the tensors that were not read yet
	for i, t := range r.Tensors {
		missing[t.Name] = i
		r.Bytes += t.Bytes
	}
	err := read(func(name string, values []float32) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		i, ok := missing[name]
		if !ok {
			return nil // such as the factors of rotary positions, which are not a parameter
		}
		delete(missing, name)
		t := &r.Tensors[i]
		if sumOf(values) == t.sum {
			return nil
		}
		w, err := source.weight(t.part.Param)
		if err != nil {
			return err
		}
		want := pick(t.part, w.values)
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
	if len(missing) > 0 {
		return fmt.Errorf("reading the export back: %s is missing", names(missing))
	}
	var different []string
	for _, t := range r.Tensors {
		if t.Quantized && t.Difference != 0 {
			different = append(different, t.Name)
		}
	}
	if r.Exact = len(different) == 0; r.Exact || inexact {
		return nil
	}
	return fmt.Errorf("the export does not read back as Q(x): %s; this is a bug in cage",
		strings.Join(different, ", "))
}

// Plan describes an export that has been checked to be possible.
type Plan struct {
	Tensors []Stored // the tensors to be written, in any order
	Notes   []string // remarks that are not about a single tensor, as sentences
	// Inputs holds the tensors of layers whose inputs programs quantize as the run does.
	Inputs map[string]bool
	// Write writes the files into a directory.
	Write func(ctx context.Context, dir vfs.Path) error
	// Read calls each with the name (as in Tensors) and values of every tensor in the written
	// files. It decodes them with code other than Write's; the header of a GGUF file is compared
	// with the intended one.
	Read func(dir vfs.Path, each func(name string, values []float32) error) error
}

// formats maps each format to a function that determines how each tensor is stored, or returns an
// error if a weight cannot be stored. The function reads all weights and writes nothing.
var formats = map[string]func(m *Model, o Options) (*Plan, error){
	"hf":                 planHub,
	"compressed-tensors": planCompressed,
	"gguf":               planGGUF,
	"mlx":                planMLX,
	"peft":               planPEFT,
}

// Formats returns the sorted names of the formats.
func Formats() []string { return slices.Sorted(maps.Keys(formats)) }

// Options are the options of [Write].
type Options struct {
	// Type is the type in which quantized weights are stored; "" means the smallest exact one.
	Type string
	// Float is the type of all other tensors: f32, bf16 or f16. In the format hf it is also the
	// type of quantized weights.
	Float string
	// Embedding is the type of the embedding and the head, if they are not quantized: one of Float's
	// or, in GGUF, q8_0, which rounds them; "" means Float. Only GGUF has it.
	Embedding string
	// Latent exports the unquantized weights that the optimizer updates.
	Latent bool
	// Inexact allows quantized weights to differ from Q(x), and allows a tokenizer that returns
	// other ids for some texts.
	Inexact bool
	// Floats allows quantized weights that the format cannot pack to be stored as floats.
	Floats bool
	// ShardSize is the largest size of a tensor file in bytes; 0 means 5 GB.
	ShardSize int64
}

// Stored is a tensor of an export.
type Stored struct {
	Name  string `json:"name"`      // name in the export
	Param string `json:"parameter"` // parameter of the model
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
	// Quantized reports whether the tensor holds Q(x).
	Quantized bool `json:"quantized"`
	// Note says why a quantized tensor is not packed; "" if it is.
	Note string `json:"note,omitempty"`
	// Difference is the largest difference between a value read back and the model's; 0 if all are
	// equal.
	Difference float64 `json:"difference"`

	part part
	sum  [sha256.Size]byte // of the model's values; see sumOf
	// tried holds how each type would store a quantized weight, in order of preference, and packing
	// is the chosen one; nil if the weight is not packed.
	tried   []packing
	packing *packing
}
