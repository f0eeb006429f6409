package train

import (
	"errors"
	"slices"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/posttrain/layerwise"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
)

// matrix is the report on a weight that was quantized; nil: it was not.
func (p *Posttrained) matrix(param string) *layerwise.Matrix {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.Matrices, func(m layerwise.Matrix) bool { return m.Name == param })
	if i < 0 {
		return nil
	}
	return &p.Matrices[i]
}

// posttrained is a weight of a run that holds quantized weights, as an export needs it: the weight is Ŵ, and its scales
// stand beside it in the checkpoint.
func (t *Trained) posttrained(w *layerwise.Matrix) (*export.Quantized, error) {
	value, err := t.latent(w.Name)
	if err != nil {
		return nil, err
	}
	q := &export.Quantized{Value: value, Rotation: w.Rotation}
	if q.Rotation > 1 {
		return q, nil
	}
	if q.Scale, q.ScaleShape, err = t.scales(w.Name); err != nil || q.Scale == nil {
		return q, err
	}
	if codes, err := export.Codes(q, t.state.Param(w.Name).Shape().Dimensions); err == nil { // else the export says that there are none
		q.Codes = codes
	}
	return q, nil
}

// scales reads the scales of a weight from the checkpoint; nil: it has none.
func (t *Trained) scales(param string) (values []float32, shape []int, err error) {
	f, err := checkpoint.Open(rundir.At(t.dir).Checkpoints().Join(checkpoint.FileName(t.step)))
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if !slices.ContainsFunc(f.Infos(), func(i safetensors.Info) bool { return i.Name == scaleName(param) }) {
		return nil, nil, nil
	}
	tensor, err := f.Tensor(scaleName(param))
	if err != nil {
		return nil, nil, err
	}
	values, err = safetensors.Values[float32](tensor)
	return values, tensor.Shape, err
}
