package huggingface

import (
	"cmp"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/safetext"
)

// keys holds the entries of a JSON object, and the faults in the entries read so far. A null entry
// counts as absent, but has no default.
type keys struct {
	values   map[string]jsontext.Value
	defaults map[string]any  // of absent keys
	known    map[string]bool // what has been asked for
	within   string          // what precedes the keys in messages
	faults   []string
}

func newKeys(text []byte) (*keys, error) {
	k := &keys{known: map[string]bool{}}
	if err := json.Unmarshal(text, &k.values); err != nil { // duplicate names are an error
		return nil, plainjson.Explain(text, err)
	}
	if k.values == nil {
		return nil, fmt.Errorf("found null, want an object")
	}
	return k, nil
}

func (k *keys) fault(key, found, want string) {
	k.faults = append(k.faults, fmt.Sprintf("%s%s: %s, want %s", k.within, key, found, want))
}

func (k *keys) has(key string) bool {
	k.known[key] = true
	return k.exists(key) && k.values[key].Kind() != 'n'
}

func (k *keys) exists(key string) bool { _, ok := k.values[key]; return ok }
func (k *keys) isNull(key string) bool { return k.exists(key) && !k.has(key) }

func (k *keys) found(key string) string {
	if !k.exists(key) {
		return "missing"
	}
	return "found " + safetext.Clip(string(k.values[key]), 80)
}

// read decodes the value of a key, or its default, into dst, and reports whether there is one of
// the right type.
func (k *keys) read(key string, dst any, want string) bool {
	value, otherwise := k.values[key], k.defaults[key]
	if !k.has(key) {
		if otherwise == nil {
			return false
		}
		if !k.exists(key) {
			value, _ = json.Marshal(otherwise)
		}
	}
	err := json.Unmarshal(value, dst)
	if err != nil || value.Kind() == 'n' {
		k.fault(key, k.found(key), want)
	}
	return err == nil && value.Kind() != 'n'
}

// object calls read with the entries of an object, unless it is absent or null.
func (k *keys) object(key string, read func(*keys)) {
	if !k.has(key) {
		return
	}
	o, err := newKeys(k.values[key])
	if err != nil {
		k.fault(key, k.found(key), "an object, or null")
		return
	}
	o.within = k.within + key + "."
	read(o)
	k.faults = append(k.faults, o.faults...)
}

// onlyKnown refuses keys that nobody has asked for, as they could change what the model computes,
// unless they are harmless or empty.
func (k *keys) onlyKnown(want string, harmless ...string) {
	empty := []string{"null", "false", "0", "0.0", `""`, "[]", "{}"}
	for key, value := range k.values {
		if !k.known[key] && !slices.Contains(harmless, key) && !slices.Contains(empty, string(value)) {
			k.fault(safetext.Clip(key, 80), k.found(key), want)
		}
	}
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
	if !k.has(key) && k.defaults[key] == nil {
		k.fault(key, k.found(key), fmt.Sprintf("an integer from 1 to %d", limit))
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
	if !k.has(key) && k.defaults[key] == nil {
		k.fault(key, k.found(key), "a positive number")
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

// theta returns the base of positions; otherwise if the key is absent.
func (k *keys) theta(otherwise float64) float64 {
	if k.known[thetaKey] = true; k.exists(thetaKey) {
		return k.requiredNumber(thetaKey)
	}
	return otherwise
}

// rope reads the positions. Version 4 of transformers wrote rope_theta and rope_scaling, version 5
// writes both as rope_parameters. A file may have either, or both if they agree.
func (k *keys) rope(f family, s *architecture.Settings) {
	theta, local := k.theta(0), f.localTheta
	if s.Kind == architecture.KindGemma3 {
		local = cmp.Or(k.number("rope_local_base_freq"), local)
	}
	var before *scaling
	read := func(o *keys) {
		found := o.scaling()
		if t := o.theta(theta); theta != 0 && t != theta && t != 0 {
			o.fault(thetaKey, o.found(thetaKey), fmt.Sprintf("%g, as elsewhere in the file", theta))
		} else {
			theta = t
		}
		if before != nil && *before != found {
			o.fault("rope_type", "found another scaling", "the same as in "+scalingKey)
		}
		before = &found
	}
	k.object(scalingKey, func(o *keys) {
		if read(o); f.localTheta == 0 && len(o.values) > 0 { // rope_parameters are not read beside it
			theta = cmp.Or(theta, f.theta, usualTheta)
		}
	})
	k.object(parametersKey, func(o *keys) {
		if f.localTheta == 0 {
			read(o)
			return
		}
		o.object(fullAttention, read)
		o.object(slidingAttention, func(o *keys) {
			local = o.theta(local)
			only(o, typeKey, "default")
			o.onlyKnown(`no such key for "default"`)
		})
		o.onlyKnown("one object for each type of layers")
	})
	s.RopeTheta = cmp.Or(theta, f.theta, usualTheta)
	s.RopeScaling = architecture.ScalingLlama3
	s.RopeFactor, s.RopeLow, s.RopeHigh, s.RopeOriginal = 1, 1, 4, 8192 // no effect at a factor of 1
	if before != nil && min(before.factor, before.low, before.high, float64(before.original)) > 0 {
		s.RopeScaling = before.rule
		s.RopeFactor, s.RopeLow, s.RopeHigh, s.RopeOriginal = before.factor, before.low, before.high,
			before.original
	}
	if want := s.LayerRope(0).RopeTheta; local != 0 && local != want {
		k.fault(parametersKey+"."+slidingAttention+"."+thetaKey, fmt.Sprintf("found %g", local),
			fmt.Sprintf("%g", want))
	}
}

// usualTheta is the base of positions in families without a default of their own.
const usualTheta = 10000

// Types of layers in config.json.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// scaling holds the parameters of RoPE scaling, all 0 if there is none.
type scaling struct {
	rule              architecture.Scaling
	factor, low, high float64
	original          int
}

const typeKey = "rope_type"

func (k *keys) scaling() (out scaling) {
	k.defaults = map[string]any{"partial_rotary_factor": 1.0, "truncate": true}
	only(k, "partial_rotary_factor", 1.0)
	k.theta(0)
	key := typeKey
	if !k.has(key) && k.has("type") {
		key = "type"
	}
	kind := cmp.Or(k.text(key), "default")
	switch {
	case slices.Contains(scalings, architecture.Scaling(kind)):
		out.rule = architecture.Scaling(kind)
		k.scalingOf(&out)
	case kind != "default":
		k.fault(key, k.found(key), knownScalings)
	}
	k.onlyKnown(fmt.Sprintf("no such key for %s = %.80q", typeKey, kind), "type")
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
		s := architecture.Settings{RopeScaling: out.rule, RopeFactor: k.number("factor")}
		want := s.RopeMagnitude()
		if x := k.number("attention_factor"); x != 0 && math.Abs(x-want) > 1e-6 {
			k.fault("attention_factor", k.found("attention_factor"), fmt.Sprintf("%g, or no such key", want))
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
}
