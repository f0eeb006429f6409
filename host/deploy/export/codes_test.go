package export_test

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/deploy/export"
)

// TestCodes: values and scales are enough to find codes, whichever numbers these stand for.
func TestCodes(t *testing.T) {
	third := float32(1) / 3
	negative := float32(math.Copysign(0, -1))
	for name, c := range map[string]struct {
		q    export.Quantized
		want []int32 // nil: there are none
	}{
		"integers":           {export.Quantized{Value: []float32{-8 * third, 0, 7 * third, third, 2, -2, 0, 0}, Scale: []float32{third, 2}}, []int32{-8, 0, 7, 1, 1, -1, 0, 0}},
		"one scale":          {export.Quantized{Value: []float32{1, 2, 3, 4, 5, 6, 7, 8}, Scale: []float32{1}}, []int32{1, 2, 3, 4, 5, 6, 7, 8}},
		"groups":             {export.Quantized{Value: []float32{1, 2, 6, 8, 0, 0, 5, 10}, Scale: []float32{1, 2, 0, 5}}, []int32{1, 2, 3, 4, 0, 0, 1, 2}},
		"four-bit floats":    {export.Quantized{Value: []float32{1.5 * third, -6 * third, negative, 0.5 * third, 3, -1, 4, 0}, Scale: []float32{third, 1}}, []int32{3, 15, 0, 1, 5, 10, 6, 0}},
		"other numbers":      {export.Quantized{Value: []float32{0.3, 0, 0, 0, 0, 0, 0, 0}, Scale: []float32{1}}, nil},
		"below a zero scale": {export.Quantized{Value: []float32{1, 0, 0, 0, 0, 0, 0, 0}, Scale: []float32{0, 1}}, nil},
		"too many scales":    {export.Quantized{Value: make([]float32, 8), Scale: make([]float32, 3)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := export.Codes(&c.q, []int{2, 4})
			if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(got, c.want) {
				t.Fatalf("codes %v, error %v, want %v", got, err, c.want)
			}
			if err != nil {
				return
			}
			c.q.Codes = got
			if _, err := export.NewGrid(&c.q, []int{2, 4}); err != nil {
				t.Errorf("codes and scales are no grid: %v", err)
			}
		})
	}
	if _, err := export.Codes(&export.Quantized{}, []int{4}); err == nil {
		t.Error("a vector has codes")
	}
}
