// Package quantize quantizes a model after its training. It reads the weights of a run or of a
// Hugging Face checkpoint, draws calibration texts, quantizes block by block ([Blocks]), and writes
// the result as a run directory. Package posttrain rounds the individual matrices.
package quantize

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Options are the options of [Run].
type Options struct {
	posttrain.Quantization
	// Plugin names the quantizer for weights, and Params holds its parameters; "" means the run's
	// own quantizer.
	Plugin string
	Params map[string]any
	// Activations also quantizes activations with the same quantizer, during calibration and in the
	// result.
	Activations bool
	Out         string // run directory to create
	Step        int    // checkpoint of a run; 0 means the newest one
	Context     int    // for a Hugging Face checkpoint; see [trained.Import]
	// Validation is a token file or chat file that becomes the validation set of the result; ""
	// means the run's validation set.
	Validation string
	Device     string
	Finder     *plugin.Finder // nil means plugin.NewFinder()
	Logger     hclog.Logger   // nil discards messages
}

// Run quantizes the weights of a run's model, or of a Hugging Face checkpoint, and writes the
// result as a run directory. If it fails, the directory does not exist. The stored weights are Ŵ;
// they are not quantized again when the run is used. The settings must have passed
// [posttrain.Quantization.Check].
func Run(ctx context.Context, dir string, o Options) (*trained.Posttrained, error) {
	var err error
	if o.Finder, o.Logger, err = plugin.Defaults(o.Finder, o.Logger); err != nil {
		return nil, err
	}
	began := time.Now()
	o.Out = filepath.Clean(o.Out)
	if err := atomicfile.CheckDir(vfs.At(o.Out)); err != nil {
		return nil, err
	}
	from, err := trained.OpenSource(dir, o.Step, o.Context, o.Logger)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	if from.Record.Posttrained != nil {
		return nil, fmt.Errorf("%s has been quantized already: quantize the model it was made from", dir)
	}
	var out *trained.Posttrained
	err = from.Use(func(load step.LoadFunc, f *checkpoint.File) (err error) {
		r := &run{Source: from, Options: o, load: load, began: began,
			ready: map[string][]safetensors.Tensor{}}
		if r.origin, err = originOf(from, f); err == nil {
			out, err = r.quantize(ctx)
		}
		return err
	})
	return out, err
}

// run is the quantization of a model, whose weights are read one at a time. It writes the run
// directory of the result.
type run struct {
	*trained.Source
	Options
	origin *provenance.Origin
	load   step.LoadFunc
	began  time.Time
	record *trained.Record                 // of the result
	parts  []*safetensors.File             // files with the weights of blocks
	ready  map[string][]safetensors.Tensor // by parameter: Ŵ, and its scales if it has any
}

func (s *run) quantize(ctx context.Context) (*trained.Posttrained, error) {
	if !s.Config.Model.Language() {
		return nil, fmt.Errorf("%s: a model of kind %q has no blocks to quantize",
			s.Dir, s.Config.Model.Kind)
	}
	var err error
	if s.Config, err = s.withQuantizer(); err != nil {
		return nil, err
	}
	m, err := build.Model(s.Config) // as evaluation of the result does
	if err != nil {
		return nil, err
	}
	blocks := &Blocks{Settings: s.Settings, Model: m.(model.Language), Values: s.values,
		Context: s.Config.Model.Context}
	calibration, err := s.texts(blocks)
	if err != nil {
		return nil, err
	}
	if s.Config, err = s.withValidation(); err != nil {
		return nil, err
	}
	blocks.Batch = batchSize(len(blocks.Sequences), blocks.Context)
	programs, err := build.Collect(ctx, build.Request{Config: s.Config, Model: m, Batch: blocks.Batch,
		Forward: true, Finder: s.Finder, Options: plugin.Options{Logger: s.Logger}})
	if err != nil {
		return nil, err
	}
	blocks.Weights, blocks.Activations = programs.Weights, programs.Activations
	if s.Plugin == "" {
		blocks.ReadInput = step.LoadQuantizer(s.load)
	}
	if blocks.Device, err = build.Device(s.Config, s.Logger.Warn); err != nil {
		return nil, err
	}
	defer blocks.Device.Close()
	result := &trained.Posttrained{Settings: s.Settings, Calibration: calibration,
		Activations: s.Activations}
	record := provenance.Record{Build: blocks.Device.BuildInfo(), Initial: s.origin,
		Tokenizer: s.Record.Tokenizer, Plugins: programs.Used, Directory: s.Record.Directory,
		Programs: (&build.Programs{Weights: programs.Weights}).Hashes()}
	s.record = &trained.Record{Posttrained: result, Record: record}
	each := func(store func([]*Quantized) error) error {
		blocks.Block = func(block int, weights []*Quantized) error {
			s.Logger.Info("quantized", "block", block+1, "of", blocks.Model.Network().Layers)
			return store(weights)
		}
		return blocks.Do(ctx)
	}
	return result, atomicfile.WriteDir(vfs.At(s.Out), func(dir vfs.Path) error {
		return s.write(ctx, rundir.Dir{Path: dir}, blocks.Model.Params(), blocks.read, each)
	})
}

func (s *run) withQuantizer() (*config.Config, error) {
	return s.Config.Changed(func(c *config.Config) error {
		c.Device.Count = min(1, c.Device.Count)
		if s.Device != "" && s.Device != c.Device.Kind {
			c.Device = config.Device{Kind: s.Device, Count: c.Device.Count,
				Precision: device.Float32, TF32: "off", Attention: device.AutoAttention}
		}
		c.Quantizer = *c.Quantizer.Forward()
		q := &c.Quantizer
		if s.Plugin != "" {
			*q = (&trained.Quantizer{Plugin: s.Plugin, Params: s.Params}).Tables()
		} else if err := build.FindPlugins(c, q.Plugins(), s.Search, s.Finder); err != nil {
			return err
		}
		if !s.Activations {
			q.Activations, q.Keys, q.Values, q.Queries, q.Head = nil, nil, nil, nil, nil
			q.Overrides = slices.DeleteFunc(q.Overrides, func(v config.Override) bool {
				return !v.About(config.RoleWeights)
			})
			for i := range q.Overrides {
				q.Overrides[i].Role = config.RoleWeights
			}
		}
		if q.Weights == nil && len(q.Overrides) == 0 {
			return fmt.Errorf("%s has no quantizer of its own: name one with --quantizer", s.Dir)
		}
		return nil
	})
}

func (s *run) withValidation() (*config.Config, error) {
	if s.Validation == "" {
		return s.Config, nil
	}
	file, err := s.OpenData(s.Validation, s.Logger)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	path := s.Validation
	if here, err := os.Getwd(); err != nil || s.Record.Directory != "" && s.Record.Directory != here {
		// Paths in the result are relative to the same directory as those of its source.
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	return s.Config.Changed(func(c *config.Config) error {
		c.Data.SetKind(build.KindOf(file))
		c.Data.Validation, c.Data.ValidationSHA256 = path, file.SHA256()
		return nil
	})
}

// batchSize returns the number of sequences that are computed at once: a divisor of their total
// number, chosen so that a batch has at most a few thousand tokens.
func batchSize(sequences, context int) int {
	const tokens = 4096
	n := max(1, min(sequences, tokens/context))
	for sequences%n != 0 {
		n--
	}
	return n
}
