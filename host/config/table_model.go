package config

import "math"

var modelTable = table{
	name: "model",
	doc: "What is trained. A language model (llama, olmo2) is a preset or has free sizes: a preset fixes layers, width,\n" +
		"heads and hidden, the rest it only suggests. A problem without data is a quadratic, f(x) = ½·xᵀAx − bᵀx with\n" +
		"A = UΛUᵀ and b = Ax*, of which the one parameter x is quantized; or the toy, f(x) = ½(x − ½)² on the numbers.\n" +
		"A key of another kind than the named one is an error.",
	fields: []field{
		{key: "kind", kind: text, is: oneOf(modelKinds...), def: KindLlama,
			at:  func(c *Config) any { return &c.Model.Kind },
			doc: "llama: the architecture of the QuEST and CAGE papers; olmo2: norms behind the layers and on queries and keys; quadratic, toy: problems without data"},
		{key: "preset", models: languages, kind: text, is: oneOf(append(presetNames(languages...), "")...), def: "",
			at:  func(c *Config) any { return &c.Model.Preset },
			doc: "size by name; empty: layers, width, heads and context are given"},
		{key: "layers", models: languages, is: from(1, 4096),
			at:     func(c *Config) any { return &c.Model.Layers },
			preset: func(p Preset) any { return int64(p.Layers) },
			doc:    "transformer blocks"},
		{key: "width", models: languages, is: from(2, 1<<20),
			at:     func(c *Config) any { return &c.Model.Width },
			preset: func(p Preset) any { return int64(p.Width) },
			doc:    "width of the residual stream"},
		{key: "heads", models: languages, is: from(1, 1<<16),
			at:     func(c *Config) any { return &c.Model.Heads },
			preset: func(p Preset) any { return int64(p.Heads) },
			doc:    "attention heads; width/heads is a whole, even number"},
		{key: "kv_heads", models: languages, is: from(0, 1<<16), def: int64(0),
			at:  func(c *Config) any { return &c.Model.KVHeads },
			doc: "heads of keys and values, each shared by heads/kv_heads heads of queries; 0: as many as heads"},
		{key: "hidden", models: languages, is: from(0, 1<<22), def: int64(0),
			at:     func(c *Config) any { return &c.Model.Hidden },
			preset: func(p Preset) any { return int64(p.Hidden) },
			doc:    "feed-forward width; 0: the SwiGLU rule, 8/3 of the width rounded up to a multiple of 256"},
		{key: "vocab", models: languages, is: from(0, 1<<24), def: int64(0),
			at:     func(c *Config) any { return &c.Model.Vocab },
			preset: func(p Preset) any { return int64(p.Vocab) },
			doc:    "vocabulary size; 0: that of the data"},
		{key: "context", models: languages, is: from(1, 1<<20),
			at:     func(c *Config) any { return &c.Model.Context },
			preset: func(p Preset) any { return int64(p.Context) },
			doc:    "tokens per sequence"},
		{key: "rope_theta", models: languages, kind: number, is: between(1, 1e12),
			derive: func(d *decoder) any {
				if d.cfg.Model.Kind == KindOLMo2 {
					return 500000.0
				}
				return 10000.0
			},
			derived: "`10000`; olmo2: `500000`",
			at:      func(c *Config) any { return &c.Model.RopeTheta },
			doc:     "base of the rotary position embedding"},
		{key: "rope_pairs", models: languages, kind: text, is: oneOf("interleaved", "half"),
			derive: func(d *decoder) any {
				if d.cfg.Model.Kind == KindOLMo2 {
					return "half"
				}
				return "interleaved"
			},
			derived: `"interleaved"; olmo2: "half"`,
			at:      func(c *Config) any { return &c.Model.RopePairs },
			doc:     "which features of a head the rotary position embedding turns together: neighbours, or those of its two halves"},
		{key: "rope_factor", models: languages, kind: number, is: between(1, 1e6), def: 1.0,
			at:  func(c *Config) any { return &c.Model.RopeFactor },
			doc: "how many times longer the long wavelengths of positions become, as in Llama 3; 1: they stay"},
		{key: "rope_low", models: languages, kind: number, is: above(0, 1e6), def: 1.0,
			at:  func(c *Config) any { return &c.Model.RopeLow },
			doc: "rope_factor: a wavelength becomes so much longer from rope_original/rope_low on"},
		{key: "rope_high", models: languages, kind: number, is: above(0, 1e6), def: 4.0,
			at:  func(c *Config) any { return &c.Model.RopeHigh },
			doc: "rope_factor: a wavelength stays up to rope_original/rope_high; above rope_low"},
		{key: "rope_original", models: languages, is: from(1, 1<<30), def: int64(8192),
			at:  func(c *Config) any { return &c.Model.RopeOriginal },
			doc: "rope_factor: tokens of the sequences that the wavelengths were made for"},
		{key: "norm_eps", models: languages, kind: number, is: above(0, 1),
			derive: func(d *decoder) any {
				if d.cfg.Model.Kind == KindOLMo2 {
					return 1e-6
				}
				return 1e-5
			},
			derived: "`0.00001`; olmo2: `0.000001`",
			at:      func(c *Config) any { return &c.Model.NormEps },
			doc:     "epsilon of RMSNorm"},
		{key: "init_std", models: languages, kind: number, is: above(0, 10), def: 0.02,
			at:  func(c *Config) any { return &c.Model.InitStd },
			doc: "standard deviation of the initial weights"},
		{key: "dimension", models: quadratics, is: from(1, 4096), def: int64(128),
			at:  func(c *Config) any { return &c.Model.Dimension },
			doc: "elements of a row of x"},
		{key: "rows", models: quadratics, is: from(1, 4096), def: int64(1),
			at:  func(c *Config) any { return &c.Model.Rows },
			doc: "rows of x, each a problem of its own with the same A; f is their sum"},
		{key: "condition", models: quadratics, kind: number, is: between(1, 1e12), def: 10.0,
			at:  func(c *Config) any { return &c.Model.Condition },
			doc: "condition number κ of A, whose eigenvalues are spaced evenly in their logarithm from 1/κ to 1; without effect beside spectrum"},
		{key: "spectrum", models: quadratics, kind: numbers, is: positive(), optional: "by condition",
			at:  func(c *Config) any { return &c.Model.Spectrum },
			doc: "the eigenvalues of A, as many as the dimension"},
		{key: "optimum", models: quadratics, kind: numbers, is: numbersWithin(1e12), optional: "drawn from N(0, I) by problem_seed",
			at:  func(c *Config) any { return &c.Model.Optimum },
			doc: "x*, row by row"},
		{key: "problem_seed", models: quadratics, is: from(0, math.MaxInt64), def: int64(0),
			at:  func(c *Config) any { return &c.Model.ProblemSeed },
			doc: "seed of the eigenvectors of A and of x*"},
		{key: "start", models: problems, kind: numbers, is: numbersWithin(1e12), optional: "drawn from N(0, start_std²·I) by seed",
			at:  func(c *Config) any { return &c.Model.Start },
			doc: "x at the start, row by row"},
		{key: "start_std", models: problems, kind: number, is: between(0, 1e12), def: 1.0,
			at:  func(c *Config) any { return &c.Model.StartStd },
			doc: "standard deviation of x at the start; without effect beside start"},
		{key: "noise", models: problems, kind: number, is: between(0, 1e12),
			derive: func(d *decoder) any {
				if d.cfg.Model.Kind == KindToy {
					return 0.0
				}
				return 0.01
			},
			derived: "`0.01`; toy: `0`",
			at:      func(c *Config) any { return &c.Model.Noise },
			doc:     "standard deviation of the noise on each element of the gradient, drawn anew in each micro-batch by seed"},
	},
}
