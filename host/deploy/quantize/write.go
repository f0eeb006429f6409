package quantize

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
)

// quantizedRun writes the run directory of a model while it is being quantized.
type quantizedRun struct {
	*source
	record *trained.Record
	log    hclog.Logger
	parts  []*safetensors.File             // files with the weights of blocks
	ready  map[string][]safetensors.Tensor // by parameter: Ŵ, and its scales if it has any
}

// write quantizes the blocks and writes the run to dir, which is renamed to out at the end.
func (w *quantizedRun) write(ctx context.Context, run *Blocks, out string, dir rundir.Dir) error {
	parts := dir.Join("blocks")
	if err := parts.MkdirAll(); err != nil {
		return err
	}
	run.Block = func(block int, weights []*Quantized) error {
		w.log.Info("quantized", "block", block+1, "of", run.Model.Blocks())
		return w.store(ctx, parts.Join(fmt.Sprintf("%d.safetensors", block)), weights)
	}
	cfg, err := w.Config.WithoutTraining(out).Changed(func(c *config.Config) error {
		if w.record.Posttrained.Activations {
			c.Quantizer = *c.Quantizer.WithoutWeights()
		} else {
			c.Quantizer = config.Quantizer{}
		}
		return nil
	})
	if err == nil {
		err = run.Do(ctx)
	}
	if err == nil {
		result := &trained.ModelRun{Config: cfg, Method: w.Config.Method, Record: w.record,
			Params: run.Model.Params(), Values: run.read, Precomputed: w.ready, From: w.Dir}
		err = result.Write(ctx, dir)
	}
	for _, part := range w.parts {
		err = errors.Join(err, part.Close())
	}
	if err != nil {
		return err
	}
	return parts.RemoveAll()
}

// store writes the weights of a block to a file, to free their memory.
func (w *quantizedRun) store(ctx context.Context, path vfs.Path, weights []*Quantized) error {
	var tensors []safetensors.Tensor
	var params []string // the parameter of each tensor
	add := func(param, name string, shape []int, values []float32) error {
		t, err := safetensors.New(name, shape, values)
		tensors, params = append(tensors, t), append(params, param)
		return err
	}
	result := w.record.Posttrained
	for _, q := range weights {
		result.Matrices = append(result.Matrices, q.Report)
		param := q.Report.Name
		err := add(param, step.ParamName(param), q.Report.Shape, q.Value)
		if err == nil && q.Scale != nil {
			err = add(param, trained.ScaleName(param), q.ScaleShape, q.Scale)
		}
		if err != nil {
			return err
		}
	}
	if err := safetensors.WriteFile(ctx, path, tensors, nil); err != nil {
		return err
	}
	part, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	w.parts = append(w.parts, part)
	for i, t := range tensors {
		stored, err := part.Tensor(t.Name)
		if err != nil {
			return err
		}
		w.ready[params[i]] = append(w.ready[params[i]], stored)
	}
	return nil
}
