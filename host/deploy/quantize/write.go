package quantize

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/posttrain/layerwise"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/atomicdir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// quantizedRun writes the run directory of a model that is being quantized.
type quantizedRun struct {
	*source
	out    string
	model  model.Model
	result *trained.Posttrained
	used   []assembly.Used
	// programs are the hashes of those that quantize weights.
	programs map[string]string
	build    engine.BuildInfo
	log      hclog.Logger

	dir   rundir.Dir
	parts []*safetensors.File             // weights of blocks
	ready map[string][]safetensors.Tensor // by parameter: Ŵ, and its scales if they are kept
}

// write makes the directory.
func (w *quantizedRun) write(ctx context.Context, run *layerwise.Run) error {
	w.ready = map[string][]safetensors.Tensor{}
	return atomicdir.Write(vfs.At(w.out), func(dir vfs.Path) error {
		w.dir = rundir.Dir{Path: dir}
		return w.fill(ctx, run)
	})
}

// fill writes everything; run.toml, which makes it a run directory, comes last.
func (w *quantizedRun) fill(ctx context.Context, run *layerwise.Run) (err error) {
	parts := w.dir.Join("blocks")
	if err := parts.MkdirAll(); err != nil {
		return err
	}
	run.Block = func(block int, weights []*layerwise.Quantized) error {
		w.log.Info("quantized", "block", block+1, "of", run.Model.Blocks())
		return w.keep(ctx, parts.Join(fmt.Sprintf("%d.safetensors", block)), weights)
	}
	err = run.Do(ctx)
	if err == nil {
		err = w.describe(ctx)
	}
	for _, part := range w.parts {
		err = errors.Join(err, part.Close())
	}
	if err != nil {
		return err
	}
	if err := parts.RemoveAll(); err != nil {
		return err
	}
	held, err := w.held()
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(w.dir.Config(), held)
}

// keep puts the weights of a block aside, so that they need no memory until all are written.
func (w *quantizedRun) keep(ctx context.Context, path vfs.Path, weights []*layerwise.Quantized) error {
	var tensors []safetensors.Tensor
	for _, q := range weights {
		w.result.Matrices = append(w.result.Matrices, q.Report)
		value, err := safetensors.New(step.ParamName(q.Report.Name), q.Report.Shape, q.Value)
		if err != nil {
			return err
		}
		tensors = append(tensors, value)
		if q.Scale == nil {
			continue
		}
		scale, err := safetensors.New(trained.ScaleName(q.Report.Name), q.ScaleShape, q.Scale)
		if err != nil {
			return err
		}
		tensors = append(tensors, scale)
	}
	if err := safetensors.WriteFile(ctx, path, tensors, nil); err != nil {
		return err
	}
	part, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	w.parts = append(w.parts, part)
	for _, q := range weights {
		for _, name := range []string{step.ParamName(q.Report.Name), trained.ScaleName(q.Report.Name)} {
			if q.Scale == nil && name == trained.ScaleName(q.Report.Name) {
				continue
			}
			t, err := part.Tensor(name)
			if err != nil {
				return err
			}
			w.ready[q.Report.Name] = append(w.ready[q.Report.Name], t)
		}
	}
	return nil
}

// describe writes the checkpoint and what is known of the run.
func (w *quantizedRun) describe(ctx context.Context) error {
	made := &trained.Record{Posttrained: w.result, Record: provenance.Record{Run: provenance.NewIdentity(), Build: w.build, Initial: w.origin,
		Tokenizer: w.made.Tokenizer, Plugins: w.used, Programs: w.programs, Directory: w.made.Directory}}
	meta, err := provenance.Metadata(made.Run, provenance.Progress{}, made.Build)
	if err != nil {
		return err
	}
	state := checkpoint.State{Meta: meta}
	for _, p := range w.model.Params() {
		if ready := w.ready[p.Name]; ready != nil {
			state.Tensors = append(state.Tensors, ready...)
			continue
		}
		read := func() ([]float32, error) { return w.values(p.Name) }
		state.Tensors = append(state.Tensors, safetensors.Lazy(step.ParamName(p.Name), p.Dims, read))
	}
	if _, err := checkpoint.Save(ctx, w.dir.Checkpoints(), state); err != nil {
		return err
	}
	if err := rundir.CopyFiles(w.dir, vfs.At(w.source.dir), tokenizer.Files); err != nil {
		return err
	}
	if made.Directory == "" {
		var err error
		if made.Directory, err = os.Getwd(); err != nil {
			return err
		}
	}
	if err := atomicfile.WriteJSON(w.dir.Provenance(), made); err != nil {
		return err
	}
	return metrics.WriteSummary(w.dir.Summary(), metrics.Summary{
		Name: rundir.At(w.out).Base(), Completed: true, Dir: w.out, Method: w.cfg.Method.Name, Form: string(w.cfg.Method.Form),
		Parameters: int64(architecture.CountParams(w.model.Params(), nil)), NonEmbedding: int64(architecture.NonEmbedding(w.model.Params()))})
}

// held is the configuration of the run: weights are used as they are, and activations as in the calibration.
func (w *quantizedRun) held() ([]byte, error) {
	cfg, err := w.cfg.WithoutTraining(w.out).Changed(func(c *config.Config) error {
		if !w.result.Activations {
			c.Quantizer = config.Quantizer{}
			return nil
		}
		c.Quantizer.Weights = nil
		c.Quantizer.Overrides = slices.DeleteFunc(c.Quantizer.Overrides, func(o config.Override) bool { return o.Role == config.RoleWeights })
		for i := range c.Quantizer.Overrides {
			c.Quantizer.Overrides[i].Role = config.RoleActivations
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return cfg.Encode()
}
