package export

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/vfs"
)

// OpenGGUF opens the model in a GGUF file as a Hugging Face checkpoint, for sequences of context
// tokens (0: the maximum of the model). files are those that describe the checkpoint and its
// tokenizer, by name. All problems with the metadata are in one error.
func OpenGGUF(file vfs.Path, context int) (
	c *huggingface.Checkpoint, files map[string][]byte, err error) {
	f, err := gguf.Open(file)
	if err != nil {
		return nil, nil, err
	}
	r := &ggufReader{File: f, known: map[string]bool{}, tensors: map[string]gguf.Info{}}
	config := r.config()
	if len(r.faults) == 0 {
		if files, config.Tokens, err = tokenizerOf(f, config.Settings.Vocab); err != nil {
			r.fault("%v", err)
		}
	}
	if len(r.faults) > 0 {
		err = &huggingface.Error{Path: file.Name, Faults: slices.Sorted(slices.Values(r.faults))}
		return nil, nil, errors.Join(err, f.Close())
	}
	d, err := config.Describe()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	for i, text := range [][]byte{d.Config, d.Generation} {
		files[huggingface.DescriptionFiles[i]] = text
	}
	c, err = huggingface.Convert(file, d, r, huggingface.Options{Context: context})
	if err != nil {
		return nil, nil, err
	}
	c.NoteStored(func(tensor string) string {
		typ := r.tensors[tensor].Type.String()
		if slices.Contains(floatTypes, strings.ToLower(typ)) {
			return ""
		}
		return typ
	}, func(string) string { return "" })
	if r.inputScales {
		c.Config.Warnings = append(c.Config.Warnings,
			"the scales of quantized inputs (input_scale) are ignored")
	}
	return c, files, nil
}

// ggufReader reads the settings and tensors of a model. Its faults name keys and tensors of the
// file.
type ggufReader struct {
	*gguf.File
	family   ggufFamily
	headSize int
	known    map[string]bool      // keys that have been read, without the family
	tensors  map[string]gguf.Info // by their names in a Hugging Face checkpoint
	faults   []string
	// inputScales reports whether layers have scales for quantized inputs, which cage does not read.
	inputScales bool
}

func (r *ggufReader) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// config reads the description of the model, without that of its tokens.
func (r *ggufReader) config() (c huggingface.Config) {
	name, _ := r.Value("general.architecture").(string)
	r.family = ggufFamily(name)
	s := &c.Settings
	known := slices.Clone(architecture.Languages)
	known = slices.DeleteFunc(known, func(kind string) bool { return kind == architecture.KindOLMo3 })
	if s.Kind = name; !slices.Contains(known, name) {
		r.fault("general.architecture: found %q, want one of %v", name, known)
		return c
	}
	if r.family == "olmo2" && r.Value(name+"."+ggufWindow) != nil {
		s.Kind = architecture.KindOLMo3
	}
	for key, want := range map[string]any{"general.type": "model", "split.count": uint16(1)} {
		if v := r.Value(key); v != nil && v != want && v != uint16(0) {
			r.fault("%s: found %v, want %v: a whole model in one file (llama-gguf-split --merge)",
				key, v, want)
		}
	}
	for _, k := range r.family.keys(s, &c.MaxPositions) {
		r.read(k)
	}
	r.heads(s)
	if r.family.isGemma() {
		s.AttentionMultiplier = r.family.attentionMultiplier(*s)
	}
	r.scaling(s)
	r.layers(s)
	r.onlyKnown()
	r.nameTensors(s)
	r.scaledPositions(s)
	return c
}

// scaling reads the scaling of positions, of which llama.cpp takes an unnamed one for linear.
func (r *ggufReader) scaling(s *architecture.Settings) {
	r.known[ggufScaling] = true
	rule, _ := r.Value(string(r.family) + "." + ggufScaling).(string)
	s.RopeScaling, s.RopeFactor = architecture.ScalingLlama3, 1
	switch architecture.Scaling(rule) {
	case "none":
		return
	case "", architecture.ScalingLinear:
		rule = string(architecture.ScalingLinear)
		s.RopeLow, s.RopeHigh, s.RopeOriginal = 1, 4, 8192 // without effect
	case architecture.ScalingYaRN:
		r.read(ggufKey{ggufOriginal, &s.RopeOriginal})
		s.RopeLow, s.RopeHigh = yarnLow, yarnHigh
	default:
		r.fault("%s.%s: found %s, want linear or yarn", r.family, ggufScaling, rule)
	}
	if r.read(ggufKey{ggufFactor, &s.RopeFactor}); s.RopeFactor != 1 {
		s.RopeScaling = architecture.Scaling(rule)
	}
}

// layers checks which layers have windows, and their positions.
func (r *ggufReader) layers(s *architecture.Settings) {
	const pattern, base = "attention.sliding_window_pattern", "rope.freq_base_swa"
	theta, key := 0.0, string(r.family)+"."
	r.read(ggufKey{base, &theta})
	if want := s.LayerRope(0).RopeTheta; cmp.Or(theta, want) != want {
		r.fault("%s: found %v, want %v", key+base, theta, want)
	}
	r.known[pattern] = true
	v := r.Value(key + pattern)
	period, isPeriod := number(v)
	list, isList := v.([]bool)
	for layer := range min(s.Layers, architecture.MaxLayers) {
		local := isPeriod && (layer+1)%max(1, int(period)) != 0 || layer < len(list) && list[layer]
		if (isPeriod || isList) && local != s.Local(layer) {
			r.fault("%s: found %v in layer %d, want that of %s", key+pattern, local, layer, s.Kind)
			break
		}
	}
	if finetuned, ok := r.Value(key + "rope.scaling.finetuned").(bool); ok && !finetuned &&
		r.family == "granite" {
		r.fault("%srope.scaling.finetuned: found false, which in this family means no positions", key)
	}
}

// ggufDefaults are keys that may be missing. Most of their values are derived from other keys.
var ggufDefaults = map[string]float64{"attention.head_count_kv": 0, "rope.freq_base": 10000,
	"rope.dimension_count": 0, "vocab_size": 0, ggufKeySize: 0, ggufValueSize: 0,
	"attention.scale": 0, "embedding_scale": 0, "residual_scale": 0, ggufFactor: 1,
	"rope.freq_base_swa": 0}

func (r *ggufReader) read(k ggufKey) {
	r.known[k.name] = true
	key := string(r.family) + "." + k.name
	v := r.Value(key)
	x, ok := number(v)
	if v == nil {
		if x, ok = ggufDefaults[k.name]; !ok {
			r.fault("%s: missing, want a number", key)
		}
	} else if !ok {
		r.fault("%s: found %v, want one number for all layers", key, shortened(v))
	}
	switch to := k.to.(type) {
	case *int:
		if *to = int(x); ok && v != nil && (float64(*to) != x || x < 1 || x > math.MaxInt32) {
			r.fault("%s: found %v, want an integer above 0", key, x)
			*to = 0
		}
	case *float64:
		if *to = x; ok && v != nil && !(x > 0 && x <= math.MaxFloat32) {
			r.fault("%s: found %v, want a number above 0", key, x)
		}
	}
}

// number converts a number of any type. A float32 becomes the shortest decimal number that rounds
// to it, as other files have it: 1e-05, and not 9.99999974e-06.
func number(v any) (x float64, ok bool) {
	switch r := reflect.ValueOf(v); {
	case !r.IsValid():
		return 0, false
	case r.CanInt():
		return float64(r.Int()), true
	case r.CanUint():
		return float64(r.Uint()), true
	case r.Kind() == reflect.Float32:
		x, err := strconv.ParseFloat(strconv.FormatFloat(r.Float(), 'g', -1, 32), 64)
		return x, err == nil
	case r.CanFloat():
		return r.Float(), true
	}
	return 0, false
}

func shortened(v any) string {
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice {
		return fmt.Sprintf("a list of %d", list.Len())
	}
	return safetext.Clip(fmt.Sprint(v), 80)
}

// heads completes the numbers and sizes of heads, of which cage has one size for all.
func (r *ggufReader) heads(s *architecture.Settings) {
	rotated, keys, values := s.HeadSize, 0, 0
	r.read(ggufKey{ggufKeySize, &keys})
	r.read(ggufKey{ggufValueSize, &values})
	s.KVHeads = cmp.Or(s.KVHeads, s.Heads)
	size := cmp.Or(keys, s.Width/max(1, s.Heads))
	s.HeadSize, r.headSize = size, size
	for key, found := range map[string]int{"rope.dimension_count": rotated, ggufValueSize: values} {
		if cmp.Or(found, size) != size {
			r.fault("%s.%s: found %d, want the size of a head, %d", r.family, key, found, size)
		}
	}
}

// ggufNeutral are values of other keys that change nothing, beside 0, false and ""; nil: any.
var ggufNeutral = map[string]any{"attention.causal": true, "attention.layer_norm_epsilon": nil,
	ggufFactor: nil, "rope.scale_linear": float32(1),
	"rope.scaling.attn_factor": float32(1), "rope.scaling.finetuned": nil,
	"rope.scaling.yarn_beta_slow": float32(yarnLow), "rope.scaling.yarn_beta_fast": float32(yarnHigh),
	"rope.scaling.yarn_attn_factor": nil, ggufOriginal: nil, "tensor_data_layout": nil,
	"pooling_type": nil}

// onlyKnown refuses further settings of the model, which would change its computation: windows of
// attention, experts, scaled positions, caps of logits.
func (r *ggufReader) onlyKnown() {
	for _, e := range r.Entries {
		key, ok := strings.CutPrefix(e.Key, string(r.family)+".")
		if !ok || r.known[key] || reflect.ValueOf(e.Value).IsZero() {
			continue
		}
		if neutral, ok := ggufNeutral[key]; !ok || neutral != nil && neutral != e.Value {
			r.fault("%s: found %v, want no such key: cage does not have this setting, which may change "+
				"what the model computes", e.Key, shortened(e.Value))
		}
	}
}

// nameTensors gives tensors their names in a Hugging Face checkpoint. Others keep theirs, so that
// they are reported.
func (r *ggufReader) nameTensors(s *architecture.Settings) {
	hub := map[string]string{}
	for name, renamed := range r.family.tensors() {
		hub[renamed] = name
	}
	scales := map[string]bool{} // by which [gguf.File.Values] multiplies, and those of inputs
	for _, t := range r.File.Tensors {
		if name := t.ScaleName(); name != "" {
			scales[name], scales[strings.TrimSuffix(name, "scale")+"input_scale"] = true, true
		}
	}
	for _, t := range r.File.Tensors {
		block, within := cutBlock(t.Name, ggufBlocksOf)
		if name, ok := hub[within]; scales[t.Name] {
			r.inputScales = r.inputScales || strings.HasSuffix(t.Name, ".input_scale")
		} else if ok {
			r.tensors[inBlock(hubBlocks, block, name)] = t
		} else {
			r.tensors[t.Name] = t
		}
	}
	embedding, head := r.tensors["model.embed_tokens.weight"], r.tensors["lm_head.weight"]
	if s.Head = "own"; head.Name == "" {
		s.Head = "tied"
	} else if r.family == "olmo2" && embedding.Type == head.Type &&
		slices.Equal(embedding.Shape, head.Shape) { // a tied head is stored, too
		a, errA := r.Bytes(embedding)
		b, errB := r.Bytes(head)
		if errA == nil && errB == nil && bytes.Equal(a, b) {
			s.Head = "tied"
		}
	}
	if s.Vocab == 0 && len(embedding.Shape) > 0 {
		s.Vocab = embedding.Shape[0]
	}
}

// scaledPositions finds the settings by which the file's divisors of rotary frequencies were made.
func (r *ggufReader) scaledPositions(s *architecture.Settings) {
	const name = "rope_freqs.weight"
	t, ok := r.tensors[name]
	if !ok || s.RopeScaling != architecture.ScalingLlama3 {
		return
	}
	delete(r.tensors, name)
	factors, err := r.Values(t)
	if err != nil {
		r.fault("%v", err)
		return
	}
	if len(factors) == 0 || len(factors) != s.HeadSize/2 {
		r.fault("tensor %s: found %d factors, want %d", name, len(factors), s.HeadSize/2)
		return
	}
	s.RopeFactor = float64(factors[len(factors)-1])
	if s.RopeFactor == 1 && slices.Max(factors) == 1 && slices.Min(factors) == 1 {
		return
	}
	s.RopeLow, s.RopeHigh, s.RopeOriginal = 1, 4, 8192 // as in all models of Meta
	nearest := 0.499
	for i, f := range factors { // the factor halfway between both bounds tells the original positions
		share := (1/float64(f) - 1/s.RopeFactor) / (1 - 1/s.RopeFactor)
		if d := math.Abs(share - 0.5); d < nearest {
			nearest = d
			wavelength := 2 * math.Pi * math.Pow(s.RopeTheta, 2*float64(i)/float64(s.HeadSize))
			s.RopeOriginal = int(math.Round((s.RopeLow + share*(s.RopeHigh-s.RopeLow)) * wavelength))
		}
	}
	if slices.EqualFunc(ropeFactors(*s), factors, func(a, b float32) bool {
		return math.Abs(float64(a-b)) <= 1e-4*float64(a) // others compute with fewer digits
	}) {
		return
	}
	r.fault("tensor %s: want frequency factors by the rule of Llama 3, with the bounds 1 and 4", name)
}

// Tensors describes the tensors as those of a Hugging Face checkpoint: see [huggingface.Tensors].
func (r *ggufReader) Tensors() (list []safetensors.Info) {
	for name, t := range r.tensors {
		list = append(list, safetensors.Info{Name: name, DType: safetensors.F32, Shape: t.Shape})
	}
	return list
}

// Tensor returns a tensor with its rows in the order of Hugging Face.
func (r *ggufReader) Tensor(name string) (safetensors.Tensor, error) {
	t := r.tensors[name]
	return safetensors.Lazy(name, t.Shape, func() ([]float32, error) {
		values, err := r.Values(t)
		if r.family.isGemma() && strings.HasSuffix(name, "norm.weight") {
			values = shifted(values, -1)
		}
		_, within := cutBlock(name, hubBlocks)
		if err != nil || !r.family.interleaves(within) {
			return values, err
		}
		rows := lists.Range(t.Shape[0])
		rows = architecture.Reorder(rows, r.headSize, architecture.Interleaved, architecture.HalfSplit)
		return pick(part{Param: architecture.Param{Dims: t.Shape}, Rows: rows}, values), nil
	}), nil
}
