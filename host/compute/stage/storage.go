package stage

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk"
)

// DType returns the element type of a tensor with the given storage on a device.
func DType(s sdk.Storage) shapes.DType {
	switch s {
	case sdk.StoreInt8:
		return shapes.Int8
	case sdk.StoreUint8:
		return shapes.Uint8
	case sdk.StoreBFloat16:
		return shapes.BFloat16
	}
	return shapes.Float32
}

// Upload copies a tensor to the device in its storage type. It is sharded by rows if divided is
// set, else replicated.
func Upload(
	dev *engine.Device, data []float32, s sdk.Storage, divided bool, dims ...int,
) (*engine.Buffer, error) {
	stored := func(v float32) float64 { return s.Round(float64(v)) }
	switch s {
	case sdk.StoreInt8:
		bytes := lists.Map(data, func(v float32) int8 { return int8(stored(v)) })
		return engine.UploadSharded(dev, bytes, divided, dims...)
	case sdk.StoreUint8:
		bytes := lists.Map(data, func(v float32) uint8 { return uint8(stored(v)) })
		return engine.UploadSharded(dev, bytes, divided, dims...)
	case sdk.StoreBFloat16:
		return engine.UploadSharded(dev, lists.Map(data, shapes.ToBFloat), divided, dims...)
	}
	return engine.UploadSharded(dev, data, divided, dims...)
}

// View returns the elements of a tensor as floats. For float32 tensors it calls [engine.View],
// which may return the tensor's own memory; other types are copied.
func View(b *engine.Buffer) ([]float32, error) {
	if b == nil {
		return nil, errors.New("there is no such tensor")
	}
	switch t := b.Shape().DType; t {
	case shapes.Float32:
		return engine.View[float32](b)
	case shapes.Int8:
		data, err := engine.View[int8](b)
		return lists.Map(data, func(v int8) float32 { return float32(v) }), err
	case shapes.Uint8:
		data, err := engine.View[uint8](b)
		return lists.Map(data, func(v uint8) float32 { return float32(v) }), err
	case shapes.BFloat16:
		data, err := engine.View[shapes.BFloat](b)
		return lists.Map(data, shapes.BFloat.Float32), err
	default:
		return nil, fmt.Errorf("unsupported type %s for a state", t)
	}
}
