package huggingface

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
)

// Version 4 of transformers wrote rope_theta and rope_scaling, version 5 writes both as
// rope_parameters. A file may have either, or both if they agree.
var scalingKeys = []string{"rope_scaling", "rope_parameters"}

// defaultTheta stands for rope_theta where it is absent.
const defaultTheta = 10000

// rope reads the wavelengths of the rotary position embedding.
func (k *keys) rope(s *architecture.Settings) {
	s.RopePairs = architecture.Interleaved
	if s.Kind != architecture.KindLlama {
		s.RopePairs = architecture.HalfSplit
	}
	theta := k.number("rope_theta")
	var before *scaling
	for _, key := range scalingKeys {
		o := k.object(key)
		if o == nil {
			continue
		}
		found := o.scaling()
		for _, f := range o.faults {
			k.faults = append(k.faults, key+"."+f)
		}
		if theta != 0 && found.theta != 0 && found.theta != theta {
			k.fault(key, fmt.Sprintf("found rope_theta = %g", found.theta), fmt.Sprintf("%g, which the file says elsewhere", theta))
		}
		theta = cmp.Or(theta, found.theta)
		found.theta = 0
		if before != nil && *before != found {
			k.fault(key, "found another scaling", "the same as in "+scalingKeys[0])
		}
		before = &found
	}
	s.RopeTheta = cmp.Or(theta, defaultTheta)
	s.RopeFactor, s.RopeLow, s.RopeHigh, s.RopeOriginal = 1, 1, 4, 8192 // without effect at a factor of 1
	if before != nil && min(before.factor, before.low, before.high, float64(before.original)) > 0 {
		s.RopeFactor, s.RopeLow, s.RopeHigh, s.RopeOriginal = before.factor, before.low, before.high, before.original
	}
}

// scaling is how wavelengths are stretched, by the rule of Llama 3; zeros: not at all.
type scaling struct {
	factor, low, high float64
	original          int
	theta             float64 // 0: not said here
}

// scaling reads one of the objects.
func (k *keys) scaling() (out scaling) {
	out.theta = k.number("rope_theta")
	only(k, "partial_rotary_factor", 1.0)
	key := "rope_type"
	if !k.has(key) && k.has("type") {
		key = "type"
	}
	switch kind := k.text(key); {
	case kind == "llama3":
		for name, to := range map[string]*float64{"factor": &out.factor, "low_freq_factor": &out.low, "high_freq_factor": &out.high} {
			if *to = k.number(name); !k.has(name) {
				k.fault(name, "missing", "a positive number")
			}
		}
		out.original = k.required("original_max_position_embeddings", mostPositions)
		if out.factor != 0 && out.factor < 1 {
			k.fault("factor", k.found("factor"), "a number from 1")
		}
	case kind != "default" && k.has(key):
		k.fault(key, k.found(key), `"default" or "llama3"`)
	case !k.has(key):
		k.untyped()
	}
	return out
}

// untyped notes the keys of a scaling that does not say which it is, as those beside a misspelt rope_type.
func (k *keys) untyped() {
	var others []string
	for name := range k.values {
		if k.has(name) && name != "rope_theta" && name != "partial_rotary_factor" {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		k.fault("rope_type", "missing beside "+strings.Join(others, ", "), `"default" or "llama3"`)
	}
}
