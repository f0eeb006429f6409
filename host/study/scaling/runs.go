package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/plaintoml"
)

// Labels defines how the methods of runs are named, and their bits.
type Labels struct {
	// Keys lists keys of the configuration, such as "method.form" or "quantizer.rotation". Their
	// values form the name of a quantized run's method; parameters of the quantizer that are not set
	// have their defaults. If Keys is nil, the name is formed by the quantizer of the weights and the
	// correction, as in "quest + CAGE".
	Keys []string
	// Bits maps plugins to their bits per weight, for quantizers that have no parameter "bits".
	Bits map[string]float64
}

// SkippedRun is the error for a run that gives no point.
type SkippedRun struct {
	Dir    string
	Reason string
	// Damaged reports whether a file of the run cannot be read; otherwise the run is unfinished or
	// unsuitable.
	Damaged bool
}

// ReadRuns reads a point from every run directory at or below dir, such as those of a study: N, D
// and the final validation loss from the run's summary, the method and its bits from the
// configuration. Runs that are not finished or have a damaged file are returned separately. A run
// without a quantizer is called "full precision", and counts as 16 bits whatever its precision of
// computation.
func ReadRuns(dir string, l Labels) ([]Point, []SkippedRun, error) {
	var points []Point
	var left []SkippedRun
	found := false
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	root := dir + string(filepath.Separator) // without the separator a link would not be followed
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.Clean(path)
		study := filepath.Join(filepath.Dir(path), rundir.StudyFile)
		switch {
		case !d.IsDir():
			return nil
		case d.Name() == rundir.StudyStale && exists(study):
			return fs.SkipDir
		case !exists(rundir.At(path).Config().Name):
			return nil
		}
		found = true
		point, err := readRun(path, l)
		if out, ok := errors.AsType[*SkippedRun](err); ok {
			left = append(left, *out)
			return fs.SkipDir
		}
		points = append(points, point)
		return cmp.Or(err, fs.SkipDir)
	})
	if err == nil && !found {
		err = fmt.Errorf("%s: no run directories in it: none has a %s", dir, rundir.ConfigFile)
	}
	return points, left, err
}

func (l *SkippedRun) Error() string { return l.Dir + ": left out: " + l.Reason }

// readRun reads the point of a run. The error is a *SkippedRun if the run gives none.
func readRun(dir string, l Labels) (p Point, err error) {
	damaged := func(err error) error {
		return &SkippedRun{dir, "it cannot be read: " + err.Error(), true}
	}
	s, err := metrics.ReadSummary(rundir.At(dir).Summary())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, &SkippedRun{dir, "its training has not ended yet", false}
	case err != nil:
		return p, damaged(err)
	case !s.Completed:
		return p, &SkippedRun{dir, "its training was stopped", false}
	case s.ValLoss == nil:
		return p, &SkippedRun{dir, "it has no validation loss", false}
	}
	cfg, err := config.Load(rundir.At(dir).Config().Name, nil)
	if err != nil {
		return p, damaged(err)
	}
	var from struct { // provenance of the weights, from provenance.json
		Initial     *struct{} `json:"initial"`     // set unless the weights were randomly initialized
		Posttrained *struct{} `json:"posttrained"` // set for a model that was quantized after training
		Plugins     []struct {
			Table  string         `json:"table"`
			Values map[string]any `json:"parameters"`
		} `json:"plugins"`
	}
	if err := plainjson.ReadFile(rundir.At(dir).Provenance(), &from); err != nil {
		return p, damaged(err)
	}
	switch {
	case from.Posttrained != nil:
		return p, &SkippedRun{dir, "it was quantized after its training", false}
	case from.Initial != nil: // its tokens are not all that the weights were trained on
		return p, &SkippedRun{dir, "it started from another trained model", false}
	}
	var values map[string]any // the parameters of the weights' quantizer, including defaults
	for _, used := range from.Plugins {
		if used.Table == "quantizer" || used.Table == "quantizer.weights" {
			values = used.Values
			break
		}
	}
	p = Point{N: float64(s.NonEmbedding), D: float64(s.Tokens), Loss: float64(*s.ValLoss), Source: dir}
	if p.Bits, err = l.bits(cfg, values); err != nil {
		return p, fmt.Errorf("%s: %w", dir, err)
	}
	if p.Method, err = l.method(dir, cfg, values); err != nil {
		return p, err
	}
	if wrong := p.check(); wrong != "" {
		return p, &SkippedRun{dir, "it cannot be a point: " + wrong, false}
	}
	return p, nil
}

func (l Labels) bits(cfg *config.Config, values map[string]any) (float64, error) {
	w := cfg.Quantizer.Weights
	if w == nil {
		return fullPrecision, nil
	}
	name := filepath.Base(w.Name)
	if bits, ok := l.Bits[name]; ok {
		return bits, nil
	}
	if values["form"] == "ternary" { // three codes, whatever bits says
		return math.Log2(3), nil
	}
	if bits, ok := values["bits"].(float64); ok {
		return bits, nil
	}
	return 0, fmt.Errorf("the quantizer %s has no parameter bits: "+
		"give the bits per weight with --bits %[1]s=4", name)
}

func (l Labels) method(dir string, cfg *config.Config, values map[string]any) (string, error) {
	w, a := cfg.Quantizer.Weights, cfg.Quantizer.Activations
	if len(cfg.Quantizer.Plugins()) == 0 {
		return "full precision", nil
	}
	if l.Keys != nil {
		config := rundir.At(dir).Config().Name
		doc, _, err := plaintoml.ReadFile(config, "a run")
		if err != nil {
			return "", err
		}
		var parts []string
		for _, key := range l.Keys {
			text, ok := doc.Scalar(key)
			for _, table := range []string{"quantizer.weights.", "quantizer."} {
				if name, is := strings.CutPrefix(key, table); is && !ok {
					var v any
					if v, ok = values[name]; ok {
						text = fmt.Sprint(v)
					}
				}
			}
			if !ok {
				text = "–" // such as a parameter that only another plugin has
			}
			parts = append(parts, text)
		}
		if !slices.ContainsFunc(parts, func(s string) bool { return s != "–" }) {
			return "", fmt.Errorf("%s has none of the keys %s", config, strings.Join(l.Keys, ", "))
		}
		return strings.Join(parts, ", "), nil
	}
	name := "full precision weights"
	switch {
	case w != nil:
		name = filepath.Base(w.Name)
		if a == nil {
			name += " (weights only)"
		}
	case a != nil:
		name = filepath.Base(a.Name) + " (activations only)"
	}
	if len(cfg.Quantizer.Overrides) > 0 {
		name += " (mixed)"
	}
	if m := cfg.Method; m.Name != cage.NameCAGE && m.Acts() || w != nil && m.Acts() {
		name += " + " + m.Title()
	}
	return name, nil
}

// ReadAll reads all sources: files, and directories of runs. Unfinished and damaged runs are
// reported on w.
func ReadAll(
	w io.Writer, sources []string, labels Labels,
) (points []Point, damaged int, err error) {
	for _, source := range sources {
		info, err := os.Stat(source)
		if err != nil || !info.IsDir() {
			more, err := ReadFile(source)
			if err != nil {
				return nil, 0, err
			}
			points = append(points, more...)
			continue
		}
		more, left, err := ReadRuns(source, labels)
		if err != nil {
			return nil, 0, err
		}
		for _, l := range left {
			fmt.Fprintln(w, &l)
			if l.Damaged {
				damaged++
			}
		}
		points = append(points, more...)
	}
	if len(points) == 0 {
		return nil, 0, fmt.Errorf("no finished runs in %s", strings.Join(sources, ", "))
	}
	seen := map[string]bool{}
	for _, p := range points {
		source := p.Source
		if abs, err := filepath.Abs(source); err == nil {
			source = abs
		}
		if seen[source] {
			return nil, 0, fmt.Errorf("%s is given twice: name each file and each directory once", p.Source)
		}
		seen[source] = true
	}
	return points, damaged, nil
}
