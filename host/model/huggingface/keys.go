package huggingface

import (
	"cmp"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/plainjson"
)

// keys holds the entries of a JSON object, and the faults in the entries read so far. A null entry
// counts as absent.
type keys struct {
	values map[string]jsontext.Value
	faults []string
}

func newKeys(text []byte) (*keys, error) {
	k := &keys{}
	if err := json.Unmarshal(text, &k.values); err != nil { // duplicate names are an error
		return nil, plainjson.Explain(text, err)
	}
	if k.values == nil {
		return nil, fmt.Errorf("found null, want an object")
	}
	return k, nil
}

func (k *keys) fault(key, found, want string) {
	k.faults = append(k.faults, fmt.Sprintf("%s: %s, want %s", key, found, want))
}

func (k *keys) has(key string) bool {
	v, ok := k.values[key]
	return ok && v.Kind() != 'n'
}

func (k *keys) found(key string) string {
	const maxLength = 80
	text := string(k.values[key])
	if len(text) > maxLength {
		text = text[:maxLength] + "…"
	}
	return "found " + text
}

// read decodes the value of a key into dst, and reports whether the key exists and its value has
// the right type.
func (k *keys) read(key string, dst any, want string) bool {
	if !k.has(key) {
		return false
	}
	if err := json.Unmarshal(k.values[key], dst); err != nil {
		k.fault(key, k.found(key), want)
		return false
	}
	return true
}

// size returns an integer from 1 to limit, or 0 if the key is absent or its value is wrong.
func (k *keys) size(key string, limit int) int {
	var n int
	want := fmt.Sprintf("an integer from 1 to %d", limit)
	if k.read(key, &n, want) && (n < 1 || n > limit) {
		k.fault(key, k.found(key), want)
		return 0
	}
	return n
}

func (k *keys) required(key string, limit int) int {
	if !k.has(key) {
		k.fault(key, "missing", fmt.Sprintf("an integer from 1 to %d", limit))
	}
	return k.size(key, limit)
}

// number returns a positive number, or 0 if the key is absent or its value is wrong.
func (k *keys) number(key string) float64 {
	var x float64
	const want = "a positive number"
	if k.read(key, &x, want) && !(x > 0 && x <= math.MaxFloat32) {
		k.fault(key, k.found(key), want)
		return 0
	}
	return x
}

func (k *keys) requiredNumber(key string) float64 {
	if !k.has(key) {
		k.fault(key, "missing", "a positive number")
	}
	return k.number(key)
}

func (k *keys) flag(key string) (value bool) {
	k.read(key, &value, "true or false")
	return value
}

// text returns a string, or "" if the key is absent or its value is wrong.
func (k *keys) text(key string) (value string) {
	k.read(key, &value, "a string")
	return value
}

// only records a fault if the key has a value other than the given one.
func only[T comparable](k *keys, key string, value T) {
	got := value
	want := fmt.Sprintf("%v, or no such key", value)
	if k.read(key, &got, want) && got != value {
		k.fault(key, k.found(key), want)
	}
}

// ids reads a token id or a list of them, all below vocab. A negative id, which means none in some
// files, is dropped.
func (k *keys) ids(key string, vocab int) (list []int32) {
	const want = "a token id, or a list of token ids, below vocab_size"
	if !k.has(key) {
		return nil
	}
	if k.values[key].Kind() == '[' {
		k.read(key, &list, want)
	} else {
		list = make([]int32, 1)
		if !k.read(key, &list[0], want) {
			return nil
		}
	}
	list = slices.DeleteFunc(list, func(id int32) bool { return id < 0 })
	if vocab > 0 && slices.ContainsFunc(list, func(id int32) bool { return int(id) >= vocab }) {
		k.fault(key, k.found(key), want)
	}
	return list
}

// Version 4 of transformers wrote rope_theta and rope_scaling, version 5 writes both as
// rope_parameters. A file may have either, or both if they agree.
var scalingKeys = []string{scalingKey, parametersKey}

func (k *keys) rope(s *architecture.Settings) {
	s.RopePairs = architecture.Interleaved
	if s.Kind != architecture.KindLlama {
		s.RopePairs = architecture.HalfSplit
	}
	theta := k.number("rope_theta")
	var before *scaling
	local := map[string]*keys{}
	for _, key := range scalingKeys {
		if !k.has(key) {
			continue
		}
		o, err := newKeys(k.values[key])
		if err == nil && o.has(fullAttention) { // one object for each type of layers
			local[key] = o
			o, err = newKeys(o.values[fullAttention])
		}
		if err != nil {
			k.fault(key, k.found(key), "an object, or null")
			continue
		}
		found := o.scaling()
		for _, f := range o.faults {
			k.faults = append(k.faults, key+"."+f)
		}
		if theta != 0 && found.theta != 0 && found.theta != theta {
			k.fault(key, fmt.Sprintf("found rope_theta = %g", found.theta),
				fmt.Sprintf("%g, as elsewhere in the file", theta))
		}
		theta = cmp.Or(theta, found.theta)
		found.theta = 0
		if before != nil && *before != found {
			k.fault(key, "found another scaling", "the same as in "+scalingKeys[0])
		}
		before = &found
	}
	s.RopeTheta = cmp.Or(theta, 10000) // default of transformers
	s.RopeScaling = architecture.ScalingLlama3
	s.RopeFactor, s.RopeLow, s.RopeHigh, s.RopeOriginal = 1, 1, 4, 8192 // no effect at a factor of 1
	if before != nil && min(before.factor, before.low, before.high, float64(before.original)) > 0 {
		s.RopeScaling = before.rule
		s.RopeFactor, s.RopeLow, s.RopeHigh, s.RopeOriginal = before.factor, before.low, before.high,
			before.original
	}
	for key, types := range local {
		k.localRope(key, types, s)
	}
}

// Types of layers in config.json.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// localRope checks the positions of layers with a window.
func (k *keys) localRope(key string, types *keys, s *architecture.Settings) {
	want := s.LayerRope(0)
	o, err := newKeys(types.values[slidingAttention])
	if err != nil || !s.Local(0) {
		k.fault(key, k.found(key), "the same positions in all layers")
		return
	}
	if found := o.scaling(); cmp.Or(found.theta, s.RopeTheta) != want.RopeTheta || found.factor > 1 ||
		len(o.faults) > 0 {
		k.fault(key+"."+slidingAttention, types.found(slidingAttention),
			fmt.Sprintf("rope_theta = %g without scaling", want.RopeTheta))
	}
}

// scaling holds the parameters of RoPE scaling, all 0 if there is none.
type scaling struct {
	rule              architecture.Scaling
	factor, low, high float64
	original          int
	theta             float64 // 0: not given here
}

func (k *keys) scaling() (out scaling) {
	out.theta = k.number("rope_theta")
	only(k, "partial_rotary_factor", 1.0)
	key := "rope_type"
	if !k.has(key) && k.has("type") {
		key = "type"
	}
	switch kind := k.text(key); {
	case slices.Contains(scalings, architecture.Scaling(kind)):
		out.rule = architecture.Scaling(kind)
		k.scalingOf(&out)
	case kind != "default" && k.has(key):
		k.fault(key, k.found(key), knownScalings)
	case !k.has(key): // it may be misspelt
		var others []string
		for name := range k.values {
			if k.has(name) && name != "rope_theta" && name != "partial_rotary_factor" {
				others = append(others, name)
			}
		}
		if len(others) > 0 {
			slices.Sort(others)
			k.fault("rope_type", "missing beside "+strings.Join(others, ", "), knownScalings)
		}
	}
	return out
}

var scalings = []architecture.Scaling{architecture.ScalingLlama3, architecture.ScalingYaRN,
	architecture.ScalingLinear}

const knownScalings = `"default", "linear", "llama3" or "yarn"`

// scalingOf reads the parameters of a rule.
func (k *keys) scalingOf(out *scaling) {
	required := map[string]*float64{"factor": &out.factor}
	out.low, out.high, out.original = 1, 4, 8192 // no effect where they are not read
	switch out.rule {
	case architecture.ScalingLlama3:
		required["low_freq_factor"], required["high_freq_factor"] = &out.low, &out.high
	case architecture.ScalingYaRN:
		out.low, out.high = cmp.Or(k.number("beta_slow"), 1), cmp.Or(k.number("beta_fast"), 32)
		only(k, "truncate", true)
		for _, name := range []string{"mscale", "mscale_all_dim"} {
			if k.has(name) {
				k.fault(name, k.found(name), "no such key")
			}
		}
	}
	for name, to := range required {
		*to = k.requiredNumber(name)
	}
	if out.rule != architecture.ScalingLinear {
		out.original = k.required("original_max_position_embeddings", maxPositions)
	}
	if out.factor != 0 && out.factor < 1 {
		k.fault("factor", k.found("factor"), "a number from 1")
	}
	want := architecture.Settings{RopeScaling: out.rule, RopeFactor: out.factor}.RopeMagnitude()
	magnitude := cmp.Or(k.number("attention_factor"), want)
	if out.rule == architecture.ScalingYaRN && math.Abs(magnitude-want) > 1e-6 {
		k.fault("attention_factor", k.found("attention_factor"), fmt.Sprintf("%g, or no such key", want))
	}
}
