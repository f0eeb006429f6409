package config

var methodTable = table{
	name: "method",
	doc: "What the training does about the quantization of weights, beyond the straight-through estimator: the CAGE\n" +
		"correction; or LOTION, the baseline that trains in full precision on a loss smoothed by randomized rounding, and\n" +
		"quantizes for evaluation only. A key of another method than the named one is an error.",
	fields: []field{
		{key: "name", kind: text, is: oneOf(MethodCAGE, MethodLOTION, MethodOff), def: MethodCAGE, common: true,
			at:  func(c *Config) any { return &c.Method.Name },
			doc: `method; off: none, as with form = "off"`},
		{key: "form", kind: text, is: oneOf("decoupled", "coupled", "off"), of: []string{MethodCAGE},
			derive: func(d *decoder) any {
				if d.cfg.Method.Name != MethodCAGE || !d.cfg.Quantizer.quantizesWeights() {
					return "off"
				}
				return "decoupled"
			},
			derived: `"decoupled"; "off" when no weight is quantized`,
			at:      func(c *Config) any { return &c.Method.Form },
			doc:     "where the correction enters: the step, the gradient, or nowhere"},
		{key: "gradient", kind: text, is: oneOf("quantized", "full"), def: "quantized", of: []string{MethodCAGE, MethodOff}, common: true,
			at:  func(c *Config) any { return &c.Method.Gradient },
			doc: "where the gradient is taken: at the quantized model, passed straight through (quantized); or at x, weights and activations in full precision (full), as in the analysis of the correction"},
		{key: "variant", kind: text, is: oneOf("paper", "official"), def: "paper", of: []string{MethodCAGE},
			at:  func(c *Config) any { return &c.Method.Variant },
			doc: "decoupled form: the residual at the decayed point with the rate of the step (paper), or after the step with the next rate (official)"},
		{key: "lambda", kind: number, is: between(0, 1e6), def: 2.0, of: []string{MethodCAGE, MethodOff},
			at:  func(c *Config) any { return &c.Method.Lambda },
			doc: "strength λ at the end of the ramp, and of ‖P_λ‖; 0: no correction"},
		{key: "silence", kind: number, is: below(0, 1), def: 0.9, of: []string{MethodCAGE},
			at:  func(c *Config) any { return &c.Method.Silence },
			doc: "silence ratio s: fraction of the run before the correction starts"},
		{key: "ramp", kind: text, is: oneOf("linear", "constant"), def: "linear", of: []string{MethodCAGE},
			at:  func(c *Config) any { return &c.Method.Ramp },
			doc: "how λ goes on after the silence"},
		{key: "pareto_every", is: from(0, most), def: int64(0), of: []string{MethodCAGE, MethodOff},
			at:  func(c *Config) any { return &c.Method.ParetoEvery },
			doc: "steps between measurements of ‖P_λ‖, each of which costs a full-precision forward and backward pass; 0: never"},
		{key: "coeff", kind: number, is: between(0, 1e12), def: 4000.0, of: []string{MethodLOTION},
			at:  func(c *Config) any { return &c.Method.Coeff },
			doc: "strength of the regularizer ½·coeff·Σ F·σ²; 0: none. The default is the best value in the CAGE paper's comparison"},
		{key: "fisher_decay", kind: number, is: below(0, 1), def: 0.999, of: []string{MethodLOTION},
			at:  func(c *Config) any { return &c.Method.FisherDecay },
			doc: "decay of F, the moving average of squared gradients, which is not bias-corrected"},
		{key: "bits", is: from(2, 16), def: int64(4), of: []string{MethodLOTION}, common: true,
			at:  func(c *Config) any { return &c.Method.Bits },
			doc: "bits of the grid of the regularizer; those of the quantizer of weights, as a rule"},
		{key: "denom", kind: text, is: oneOf("power", "symmetric"), def: "power", of: []string{MethodLOTION},
			at:  func(c *Config) any { return &c.Method.Denom },
			doc: "the grid's step is the largest magnitude of the tensor over 2^(bits−1) (power, as in the CAGE paper's comparison), or over 2^(bits−1) − 1 (symmetric, the integer grid of the LOTION paper)"},
	},
}
