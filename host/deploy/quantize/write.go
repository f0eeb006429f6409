package quantize

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// quantizedRun writes the run directory of a model that is being quantized.
type quantizedRun struct {
	*source
	out    string
	model  model.Model
	result *trained.Posttrained
	used   []build.Used
	// programs are the hashes of the programs that quantize weights.
	programs map[string]string
	build    engine.BuildInfo
	log      hclog.Logger

	dir    rundir.Dir
	parts  []*safetensors.File             // files with the weights of blocks
	ready  map[string][]safetensors.Tensor // by parameter: Ŵ, and its scales if it has any
	states []safetensors.Tensor            // states of the quantizers of activations
}

func (w *quantizedRun) write(ctx context.Context, run *Blocks) error {
	w.ready = map[string][]safetensors.Tensor{}
	return atomicfile.WriteDir(vfs.At(w.out), func(dir vfs.Path) error {
		w.dir = rundir.Dir{Path: dir}
		return w.fill(ctx, run)
	})
}

func (w *quantizedRun) fill(ctx context.Context, run *Blocks) (err error) {
	parts := w.dir.Join("blocks")
	if err := parts.MkdirAll(); err != nil {
		return err
	}
	run.Block = func(block int, weights []*Quantized) error {
		w.log.Info("quantized", "block", block+1, "of", run.Model.Blocks())
		return w.store(ctx, parts.Join(fmt.Sprintf("%d.safetensors", block)), weights)
	}
	run.State = func(site, name string, shape []int, values []float32) error {
		state, err := safetensors.New(step.QuantizerStateName(site, name), shape, values)
		w.states = append(w.states, state)
		return err
	}
	if err = run.Do(ctx); err == nil {
		err = w.writeRun(ctx)
	}
	for _, part := range w.parts {
		err = errors.Join(err, part.Close())
	}
	if err != nil {
		return err
	}
	return parts.RemoveAll()
}

func (w *quantizedRun) writeRun(ctx context.Context) error {
	cfg, err := w.cfg.WithoutTraining(w.out).Changed(func(c *config.Config) error {
		if w.result.Activations {
			c.Quantizer = *c.Quantizer.WithoutWeights()
		} else {
			c.Quantizer = config.Quantizer{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	made := &trained.Record{Posttrained: w.result, Record: provenance.Record{Build: w.build, Initial: w.origin,
		Tokenizer: w.made.Tokenizer, Plugins: w.used, Programs: w.programs, Directory: w.made.Directory}}
	run := &trained.ModelRun{Config: cfg, Method: w.cfg.Method, Record: made, Params: w.model.Params(), Values: w.values, Ready: w.ready, More: w.states, From: w.source.dir}
	return run.Write(ctx, w.dir)
}

// store writes the weights of a block to a file, so that they need not stay in memory.
func (w *quantizedRun) store(ctx context.Context, path vfs.Path, weights []*Quantized) error {
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
		names := []string{step.ParamName(q.Report.Name)}
		if q.Scale != nil {
			names = append(names, trained.ScaleName(q.Report.Name))
		}
		for _, name := range names {
			t, err := part.Tensor(name)
			if err != nil {
				return err
			}
			w.ready[q.Report.Name] = append(w.ready[q.Report.Name], t)
		}
	}
	return nil
}
