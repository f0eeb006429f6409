package diagnostics

import (
	"math"

	"github.com/cage-qat/cage/internal/schema"
)

// Settings is the table [diagnostics] of a configuration: how the movement of
// weights between the cells of their quantizer is sampled.
type Settings struct {
	Every       int   // steps between samples; 0: off
	Coordinates int   // number of coordinates followed, over all tensors
	Window      int   // number of samples that a record looks at
	Seed        int64 // seed for choosing the coordinates
	Tensors     bool  // whether records hold numbers of each tensor
}

// Keys returns the keys of the table.
func (s *Settings) Keys() []schema.Key {
	return []schema.Key{
		{Name: "every", To: &s.Every, Is: schema.From(0, schema.Most), Common: true, Default: 0,
			Doc: "steps between samples, each of which costs one more quantization of the weights and a pass over the samples in the window; 0: none are taken"},
		{Name: "coordinates", To: &s.Coordinates, Is: schema.From(1, 1<<22), Default: 4096,
			Doc: "coordinates followed, a random choice among all quantized weights"},
		{Name: "window", To: &s.Window, Is: schema.From(2, 1<<16), Default: 32,
			Doc: "samples over which dwell times and coherence are taken; independent residuals have a coherence of about 1/√window"},
		{Name: "seed", To: &s.Seed, Is: schema.From(0, math.MaxInt64), Default: 0,
			Doc: "seed of the choice of coordinates"},
		{Name: "tensors", To: &s.Tensors, Default: false,
			Doc: "record for each tensor the norm of its gradient, its learning rate and, where it is quantized, its relative error"},
	}
}
