package export_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestFloatTypeOfMixtures: config.json says bfloat16 as soon as one weight is packed in four-bit floats, beside which others there are.
func TestFloatTypeOfMixtures(t *testing.T) {
	powers := func(m []float32) (out []float32) {
		for _, v := range m {
			_, e := math.Frexp(float64(v))
			out = append(out, float32(math.Ldexp(1, e-3)))
		}
		return out
	}
	floats, whole := fourBitFloats(t, 32, powers), integers(32, halfSeventh)
	for among, want := range map[string][2]string{
		"":     {"mxfp4-pack-quantized", "bfloat16"},
		"attn": {"mixed-precision", "bfloat16"},
		"none": {"pack-quantized", "float32"},
	} {
		m := small(t, architecture.KindLlama, func(p architecture.Param, x []float32) *export.Quantized {
			if strings.Contains(p.Name, among) {
				return floats(p, x)
			}
			return whole(p, x)
		})
		out := filepath.Join(t.TempDir(), "out")
		if _, err := export.Write(t.Context(), "compressed-tensors", vfs.At(out), m, export.Options{}); err != nil {
			t.Errorf("%q: %v", among, err)
			continue
		}
		text, err := os.ReadFile(filepath.Join(out, "config.json"))
		var config struct {
			Type         string                  `json:"torch_dtype"`
			Quantization struct{ Format string } `json:"quantization_config"`
		}
		if err == nil {
			err = json.Unmarshal(text, &config)
		}
		if got := [2]string{config.Quantization.Format, config.Type}; err != nil || got != want {
			t.Errorf("%q: %v, want %v, %v", among, got, want, err)
		}
	}
}
