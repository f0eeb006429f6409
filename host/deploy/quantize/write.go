package quantize

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

// write writes the run to dir, which is renamed to Out at the end. quantize calls store with the
// quantized weights, some at a time; values returns the elements of the other parameters.
func (s *run) write(ctx context.Context, dir rundir.Dir, params []architecture.Param,
	values func(param string) ([]float32, error),
	quantize func(store func([]*Quantized) error) error) error {
	parts := dir.Join("blocks")
	if err := parts.MkdirAll(); err != nil {
		return err
	}
	cfg, err := s.Config.WithoutTraining(s.Out).Changed(func(c *config.Config) error {
		if s.record.Posttrained.Activations {
			c.Quantizer = *c.Quantizer.WithoutWeights()
		} else {
			c.Quantizer = config.Quantizer{}
		}
		return nil
	})
	if err == nil {
		err = quantize(func(weights []*Quantized) error {
			return s.store(ctx, parts.Join(fmt.Sprintf("%d.safetensors", len(s.parts))), weights)
		})
	}
	var files map[string][]byte
	if err == nil {
		files, err = trained.ModelFiles(s.Dir)
	}
	if err == nil {
		result := &trained.ModelRun{Config: cfg, Method: s.Config.Method, Record: s.record,
			Params: params, Values: values, Precomputed: s.ready, Files: files, Began: s.began}
		err = result.Write(ctx, dir)
	}
	for _, part := range s.parts {
		err = errors.Join(err, part.Close())
	}
	if err != nil {
		return err
	}
	return parts.RemoveAll()
}

// store writes weights to a file, to free their memory.
func (s *run) store(ctx context.Context, path vfs.Path, weights []*Quantized) error {
	var tensors []safetensors.Tensor
	var params []string // the parameter of each tensor
	add := func(param, name string, shape []int, values []float32) error {
		t, err := safetensors.New(name, shape, values)
		tensors, params = append(tensors, t), append(params, param)
		return err
	}
	result := s.record.Posttrained
	for _, q := range weights {
		result.Matrices = append(result.Matrices, q.Report)
		param := q.Report.Name
		err := add(param, program.KindParam.Of(param), q.Report.Shape, q.Value)
		if err == nil && q.Scale != nil {
			err = add(param, trained.ScaleName(param), q.ScaleShape, q.Scale)
		}
		for _, t := range q.Inputs {
			err = cmp.Or(err, add(param, t.Name, t.Dims, t.Data))
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
	s.parts = append(s.parts, part)
	for i, t := range tensors {
		stored, err := part.Tensor(t.Name)
		if err != nil {
			return err
		}
		s.ready[params[i]] = append(s.ready[params[i]], stored)
	}
	return nil
}
