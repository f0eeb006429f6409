package export

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/internal/atomicdir"
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
// or absent: see package atomicdir.
func Write(ctx context.Context, format string, to vfs.Path, m *Model, o Options) (*Report, error) {
	f, err := formatOf(format)
	if err != nil {
		return nil, err
	}
	to = vfs.On(to.FS, filepath.Clean(to.Name)) // DIR/ is DIR: the other name stands beside it
	if err := atomicdir.Check(to); err != nil {
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
	e := preparedExport{format: format, plan: plan, model: m, options: o}
	return e.into(ctx, to)
}

// preparedExport is an export that is known to be possible.
type preparedExport struct {
	format  string
	plan    Plan
	model   *Model
	options Options
}

// into makes the directory.
func (e preparedExport) into(ctx context.Context, to vfs.Path) (report *Report, err error) {
	err = atomicdir.Write(to, func(dir vfs.Path) (err error) {
		report, err = e.fill(ctx, dir, to)
		return err
	})
	return report, err
}

func (e preparedExport) fill(ctx context.Context, dir, to vfs.Path) (*Report, error) {
	if err := e.plan.Write(ctx, dir); err != nil {
		return nil, err
	}
	report := &Report{Format: e.format, Path: to.Name, Exact: true, Tensors: e.plan.Tensors(), Warnings: e.model.Tokenizer.Warnings}
	if n, ok := e.plan.(noter); ok {
		report.Notes = n.Notes()
	}
	if err := e.compare(ctx, dir, report); err != nil {
		return nil, err
	}
	card, err := e.model.Card.render(report, e.model)
	if err != nil {
		return nil, err
	}
	return report, errors.Join(
		atomicfile.WriteJSON(dir.Join(reportFile), report),
		atomicfile.WriteBytes(dir.Join(cardFile), card))
}

// compare reads everything back and notes how it differs from what was to be exported.
func (e preparedExport) compare(ctx context.Context, dir vfs.Path, r *Report) error {
	source := &source{Model: e.model, latent: e.options.Latent}
	left := map[string]int{}
	for i, t := range r.Tensors {
		left[t.Name] = i
		r.Bytes += t.Bytes
	}
	err := e.plan.Read(dir, func(name string, values []float32) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		i, ok := left[name]
		if !ok {
			return nil // such as the factors of rotary positions, which are no parameter
		}
		delete(left, name)
		return r.Tensors[i].compare(source, values)
	})
	if err != nil {
		return fmt.Errorf("reading the export back: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("reading the export back: %s is missing", names(left))
	}
	return e.judge(r)
}

// compare notes the largest difference of values that were read back.
func (t *Stored) compare(s *source, values []float32) error {
	w, err := s.weight(t.part.param)
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
}

// judge holds the promise: quantized weights are equal, unless a difference was allowed.
func (e preparedExport) judge(r *Report) error {
	var different []string
	for _, t := range r.Tensors {
		if t.Quantized && t.Difference != 0 {
			different = append(different, t.Name)
		}
	}
	r.Exact = len(different) == 0
	if r.Exact || e.options.Inexact {
		return nil
	}
	return fmt.Errorf("what was written does not read back as Q(x): %s; this is a mistake of cage", strings.Join(different, ", "))
}
