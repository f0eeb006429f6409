package checkpoint_test

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/sdk"
)

// TestTensor checks that a checkpoint stores state in its storage type, without loss.
func TestTensor(t *testing.T) {
	for storage, c := range map[sdk.Storage]struct {
		dtype  safetensors.DType
		values []float32
	}{
		sdk.StoreFloat32:  {safetensors.F32, []float32{0.1, -3, 1e-40}},
		sdk.StoreInt8:     {safetensors.I8, []float32{-128, 0, 127}},
		sdk.StoreUint8:    {safetensors.U8, []float32{0, 128, 255}},
		sdk.StoreBFloat16: {safetensors.BF16, []float32{1.0078125, -0x1p-130, 3e38}},
	} {
		for i, v := range c.values {
			c.values[i] = float32(storage.Round(float64(v)))
		}
		s := checkpoint.Tensor("s", []int{3}, storage,
			func() ([]float32, error) { return c.values, nil })
		data, err := s.Bytes()
		if err != nil || s.DType != c.dtype || len(data) != 3*storage.Bytes() {
			t.Errorf("%s: %d bytes of %s, %v", storage, len(data), s.DType, err)
		}
		if got, err := checkpoint.Floats(s); err != nil || !slices.Equal(got, c.values) {
			t.Errorf("%s: %v is read as %v, %v", storage, c.values, got, err)
		}
	}
}
