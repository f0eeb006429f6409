package config

import "math"

// Diagnostics says what is sampled about the movement of weights between the cells of
// their quantizer; see host/diagnostics.
type Diagnostics struct {
	Every       int   // steps between samples; 0: off
	Coordinates int   // followed in all
	Window      int   // samples that a record looks at
	Seed        int64 // of the choice of coordinates
}

var diagnosticsTable = table{
	name: "diagnostics",
	doc: "Samples of the codes and residuals of quantized weights, from which each line of metrics at a sample says how\n" +
		"often codes change, how long they stay and whether residuals add up: what the schedule of λ rests on. They\n" +
		"change nothing about the training.",
	fields: []field{
		{key: "every", is: from(0, most), def: int64(0), common: true,
			at:  func(c *Config) any { return &c.Diagnostics.Every },
			doc: "steps between samples, each of which costs one more quantization of the weights; 0: none are taken"},
		{key: "coordinates", is: from(1, 1<<22), def: int64(4096),
			at:  func(c *Config) any { return &c.Diagnostics.Coordinates },
			doc: "coordinates followed, a random choice among all quantized weights"},
		{key: "window", is: from(2, 1<<16), def: int64(32),
			at:  func(c *Config) any { return &c.Diagnostics.Window },
			doc: "samples over which dwell times and coherence are taken; independent residuals have a coherence of about 1/√window"},
		{key: "seed", is: from(0, math.MaxInt64), def: int64(0),
			at:  func(c *Config) any { return &c.Diagnostics.Seed },
			doc: "seed of the choice of coordinates"},
	},
}
