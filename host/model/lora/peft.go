package lora

import (
	"cmp"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/internal/vfs"
)

// Files of PEFT, the prefix of the names of its tensors, and the task of language models.
const (
	PEFTFile       = "adapter_model.safetensors"
	PEFTConfigFile = "adapter_config.json"
	peftPrefix     = "base_model.model."
	CausalTask     = "CAUSAL_LM"
)

// PEFTConfig holds the keys of adapter_config.json that are understood.
type PEFTConfig struct {
	Type    string  `json:"peft_type"`
	Task    string  `json:"task_type,omitzero"`
	Base    string  `json:"base_model_name_or_path,omitzero"`
	Rank    int     `json:"r"`
	Alpha   float64 `json:"lora_alpha"`
	RSLoRA  bool    `json:"use_rslora,omitzero"`
	Ranks   entries `json:"rank_pattern,omitzero"`
	Alphas  entries `json:"alpha_pattern,omitzero"`
	Bias    string  `json:"bias"`
	Dropout float64 `json:"lora_dropout"`

	// The modules that have adapters; factors of others are not used.
	Targets  any `json:"target_modules"`               // names, or a regular expression
	Excluded any `json:"exclude_modules,omitzero"`     // likewise
	Layers   any `json:"layers_to_transform,omitzero"` // a number, or numbers; none for all
	Blocks   any `json:"layers_pattern,omitzero"`      // names of the list of layers; none for any

	Start any `json:"init_lora_weights,omitzero"`

	// These do not change what a trained adapter computes.
	Version   any `json:"peft_version,omitzero"`
	Revision  any `json:"revision,omitzero"`
	Mapping   any `json:"auto_mapping,omitzero"`
	Inference any `json:"inference_mode,omitzero"`
	Runtime   any `json:"runtime_config,omitzero"`
	EVA       any `json:"eva_config,omitzero"` // for init_lora_weights

	Others map[string]jsontext.Value `json:",embed"`
}

// otherDefaults are the defaults of keys that are not understood, if they are not null, false or
// empty, as those of all others are.
var otherDefaults = map[string]string{"megatron_core": `"megatron.core"`,
	"qalora_group_size": "16"}

// readConfig reads adapter_config.json. Absent keys have the defaults of PEFT.
func readConfig(path vfs.Path) (c PEFTConfig, err error) {
	c = PEFTConfig{Rank: 8, Alpha: 8, Bias: "none"}
	if err := plainjson.ReadFile(path, &c); err != nil {
		return c, err
	}
	fault := func(key string, found any, want string) {
		err = errors.Join(err, fmt.Errorf("%s: %s: found %.80q, want %s", path, key,
			fmt.Sprint(found), want))
	}
	if c.Type != "LORA" {
		fault("peft_type", c.Type, "LORA")
	}
	if c.Task != "" && c.Task != CausalTask {
		fault("task_type", c.Task, CausalTask+", or null")
	}
	if c.Bias != "none" {
		fault("bias", c.Bias, "none")
	}
	switch c.Start {
	case nil, true, false, "gaussian", "eva", "orthogonal":
	default:
		fault("init_lora_weights", c.Start, `true, false, "gaussian", "eva" or "orthogonal": with others `+
			"PEFT may change the weights of the model before it adds the adapters (it converts such an "+
			"adapter that is saved with path_initial_model_for_weight_conversion)")
	}
	for _, key := range slices.Sorted(maps.Keys(c.Others)) {
		value := c.Others[key]
		_ = value.Compact()
		if !slices.Contains([]string{"null", "false", "[]", "{}", `""`, otherDefaults[key]},
			string(value)) {
			fault(key, value, cmp.Or(otherDefaults[key], "null, false or empty")+
				", as this setting is not supported")
		}
	}
	return c, err
}

// adapts reports whether PEFT gives a module an adapter.
func (c PEFTConfig) adapts(module string) (bool, error) {
	targeted, err := selects(c.Targets, module)
	excluded, err2 := selects(c.Excluded, module)
	if err = errors.Join(err, err2); err != nil || !targeted || excluded {
		return false, err
	}
	layers, blocks := listOf(c.Layers), listOf(c.Blocks)
	if len(layers) == 0 {
		return true, nil
	}
	if len(blocks) == 0 {
		blocks = []any{"[^.]*"}
	}
	for _, block := range blocks {
		re, err := regexp.Compile(fmt.Sprintf(`^(?:.*?\.)?%v\.(\d+)\.`, block))
		if err != nil {
			return false, err
		}
		if m := re.FindStringSubmatch(module); m != nil {
			layer, err := strconv.ParseFloat(m[1], 64)
			return slices.Contains(layers, any(layer)), err
		}
	}
	return false, nil
}

// selects reports whether a module is one of those that a value in adapter_config.json names: by
// the ends of their paths, or by an expression for whole paths.
func selects(value any, module string) (bool, error) {
	if text, ok := value.(string); ok {
		if strings.EqualFold(text, "all-linear") {
			return true, nil
		}
		re, err := regexp.Compile("^(?:" + text + ")$")
		return err == nil && re.MatchString(module), err
	}
	return slices.ContainsFunc(listOf(value), func(name any) bool {
		return strings.HasSuffix("."+module, fmt.Sprint(".", name))
	}), nil
}

// listOf returns the elements of a list, or a single value as a list.
func listOf(value any) []any {
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		return value
	}
	return []any{value}
}

// entries are entries of a pattern, which are an object in adapter_config.json. Their order counts.
type entries []string

func (e entries) MarshalJSONTo(to *jsontext.Encoder) error {
	err := to.WriteToken(jsontext.BeginObject)
	for _, entry := range e {
		expression, text, _ := strings.CutLast(entry, "=")
		number, invalid := strconv.ParseFloat(text, 64) // which accepts more than JSON, such as .5 and +4
		// Without an exponent or ".0": Python would read a rank of 1e1 as a float, which is no size.
		value := strconv.FormatFloat(number, 'f', -1, 64)
		err = errors.Join(err, invalid, to.WriteToken(jsontext.String(expression)),
			to.WriteValue(jsontext.Value(value)))
	}
	return errors.Join(err, to.WriteToken(jsontext.EndObject))
}

func (e *entries) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	start, err := from.ReadToken()
	if err != nil || start.Kind() == 'n' {
		return err
	}
	if start.Kind() != '{' {
		return errors.New("rank_pattern or alpha_pattern is not an object that maps patterns to numbers")
	}
	for from.PeekKind() != '}' {
		name, err := from.ReadToken()
		if err != nil {
			return err
		}
		entry := name.String() + "="
		value, err := from.ReadValue()
		if err != nil {
			return err
		}
		*e = append(*e, entry+string(value))
	}
	_, err = from.ReadToken()
	return err
}

// Load reads factors of the adapters in list from the files of PEFT in dir, by their names. Modules
// whose factors the files do not have are returned, too: they start as in a new adapter with this
// seed. If that is a whole weight, its factors are left out.
func (s Settings) Load(seed uint64, dir vfs.Path, list []Adapter) (
	factors map[string][]float32, missing []string, err error) {
	config, err := readConfig(dir.Join(PEFTConfigFile))
	if err != nil {
		return nil, nil, err
	}
	path := dir.Join(PEFTFile)
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	shapes := map[string][]int{}
	for _, info := range file.Tensors() {
		shapes[info.Name] = info.Shape
	}
	read := 0
	factors = map[string][]float32{}
	for pair := range slices.Chunk(TensorsOf(list), 2) {
		a, b := pair[0], pair[1]
		_, hasA := shapes[a.Name]
		_, hasB := shapes[b.Name]
		switch {
		case hasA != hasB:
			if hasA {
				a, b = b, a
			}
			return nil, nil, fmt.Errorf("%s has %s without %s", path, b.Name, a.Name)
		case !hasA:
			missing = append(missing, a.Module)
			continue
		}
		if err := config.agree(s, a.Part); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", dir.Join(PEFTConfigFile), err)
		}
		for _, t := range pair {
			if want := []int{len(t.Rows), t.Columns}; !slices.Equal(shapes[t.Name], want) {
				return nil, nil, fmt.Errorf("%s: %s has the shape %v, want %v", path, t.Name,
					shapes[t.Name], want)
			}
			read++
			delete(shapes, t.Name)
			tensor, err := file.Tensor(t.Name)
			if err != nil {
				return nil, nil, err
			}
			values, err := safetensors.Floats(tensor)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", path, err)
			}
			if slices.ContainsFunc(values, func(x float32) bool { return x-x != 0 }) {
				return nil, nil, fmt.Errorf("%s: tensor %s has values that are NaN or infinite", path, t.Name)
			}
			width := t.Dims[1]
			if factors[t.Factor.Name] == nil {
				factors[t.Factor.Name] = make([]float32, t.Dims[0]*width)
				t.Draw(seed, factors[t.Factor.Name])
			}
			for i, row := range t.Rows {
				copy(factors[t.Factor.Name][row*width:], values[i*t.Columns:][:t.Columns])
			}
		}
	}
	if len(shapes) > 0 {
		return nil, nil, fmt.Errorf("%s: %s: not adapters of weights in adapters.targets", path,
			Few(slices.Sorted(maps.Keys(shapes))))
	}
	if read == 0 {
		return nil, nil, fmt.Errorf("%s has no factors", path)
	}
	return factors, missing, nil
}

// agree reports an error if PEFT does not use the factors of a module as a run does.
func (c PEFTConfig) agree(s Settings, p Part) error {
	adapts, err := c.adapts(p.Module)
	if err != nil {
		return fmt.Errorf("target_modules, exclude_modules or layers_pattern: %w", err)
	}
	if !adapts {
		return fmt.Errorf("PEFT does not use the factors of %s: want it in target_modules, not in "+
			"exclude_modules, and its layer in layers_to_transform, if there is such a key", p.Module)
	}
	s.Rank, s.Alpha, s.RSLoRA, s.Ranks, s.Alphas = c.Rank, c.Alpha, c.RSLoRA, c.Ranks, c.Alphas
	of, err := s.ofModule()
	if err != nil {
		return fmt.Errorf("%s or %s: %w", ranksKey, alphasKey, err)
	}
	if rank, scale := of(p.Module); rank != p.Rank || scale != p.Scale {
		want := fmt.Sprintf("rank = %d, alpha = %g, rslora = %v", c.Rank, c.Alpha, c.RSLoRA)
		for key, list := range map[string][]string{ranksKey: c.Ranks, alphasKey: c.Alphas} {
			if len(list) > 0 {
				want += fmt.Sprintf(", %s = %.500s", key, schema.Quoted(list))
			}
		}
		return fmt.Errorf("%s has the rank %d and the scale %g, and in [adapters] the rank %d and the "+
			"scale %g: want %s there", p.Module, rank, scale, p.Rank, p.Scale, want)
	}
	return nil
}

// Few returns the first few of names, and the number of others, for messages.
func Few(names []string) string {
	const most = 8
	text := fmt.Sprintf("%.800s", strings.Join(names[:min(most, len(names))], ", "))
	if n := len(names) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// Tensor is a tensor in a file of PEFT, which holds rows of a factor, or their first columns.
type Tensor struct {
	Factor
	Part
	Name    string // in the file
	Rows    []int
	Columns int
}

// TensorsOf lists the tensors of adapters in a file of PEFT: A and B of each module.
func TensorsOf(list []Adapter) (tensors []Tensor) {
	for _, a := range list {
		row := 0 // of A
		for _, p := range a.Parts {
			rows := lists.Make(p.Rank, func(k int) int { return row + k })
			row += p.Rank
			tensors = append(tensors,
				Tensor{a.A(), p, peftPrefix + p.Module + suffixA + ".weight", rows, a.In},
				Tensor{a.B(), p, peftPrefix + p.Module + suffixB + ".weight", p.Rows, p.Rank})
		}
	}
	return tensors
}
