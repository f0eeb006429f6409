package lora

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Files of PEFT, and the prefix of the names of its tensors.
const (
	PEFTFile       = "adapter_model.safetensors"
	PEFTConfigFile = "adapter_config.json"
	peftPrefix     = "base_model.model."
)

// PEFTConfig holds the keys of adapter_config.json that this package writes, and those that change
// what adapters compute.
type PEFTConfig struct {
	Type       string         `json:"peft_type"`
	Task       string         `json:"task_type"`
	Base       string         `json:"base_model_name_or_path"`
	Rank       int            `json:"r"`
	Alpha      float64        `json:"lora_alpha"`
	Targets    any            `json:"target_modules"`
	Dropout    float64        `json:"lora_dropout"`
	Bias       string         `json:"bias"`
	RankScaled bool           `json:"use_rslora,omitzero"`
	DoRA       bool           `json:"use_dora,omitzero"`
	Ranks      map[string]any `json:"rank_pattern,omitzero"`
	Alphas     map[string]any `json:"alpha_pattern,omitzero"`
	Whole      []string       `json:"modules_to_save,omitzero"`
	Start      any            `json:"init_lora_weights,omitzero"`
}

func (c PEFTConfig) check(s Settings) error {
	var faults []string
	for fault, found := range map[string]bool{
		fmt.Sprintf("peft_type is %q, want LORA", c.Type):            c.Type != "LORA",
		fmt.Sprintf("r is %d, and adapters.rank %d", c.Rank, s.Rank): c.Rank != s.Rank,
		"lora_alpha differs from adapters.alpha":                     c.Alpha != s.Alpha,
		fmt.Sprintf("bias is %q, want none", c.Bias):                 c.Bias != "" && c.Bias != "none",
		"use_rslora, use_dora, rank_pattern and alpha_pattern must not be set": c.RankScaled || c.DoRA ||
			len(c.Ranks)+len(c.Alphas) > 0,
		"modules_to_save must not be set": len(c.Whole) > 0,
		fmt.Sprintf("init_lora_weights is %q, with which PEFT may change the weights of the model "+
			"before it adds the adapters (PEFT converts such an adapter if it is saved with "+
			"path_initial_model_for_weight_conversion)", c.Start): c.changesModel(),
	} {
		if found {
			faults = append(faults, fault)
		}
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// changesModel reports whether PEFT may subtract the adapters' first values from the weights of the
// model, as it does for "pissa".
func (c PEFTConfig) changesModel() bool {
	name, ok := c.Start.(string)
	return ok && !slices.Contains([]string{"gaussian", "eva", "orthogonal"}, name)
}

// Load reads factors of the adapters in list from the files of PEFT in dir, by their names. The
// tensors of the model are those of layout. Factors that the files do not have are left out; rows
// that they do not have, such as those of keys in attn.qkv, start as in a new adapter with this
// seed.
func (s Settings) Load(seed uint64, dir vfs.Path, list []Adapter, layout []huggingface.Mapping) (
	factors map[string][]float32, err error) {
	text, err := dir.Join(PEFTConfigFile).ReadFile()
	if err != nil {
		return nil, err
	}
	var config PEFTConfig
	if err := plainjson.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", dir.Join(PEFTConfigFile), err)
	}
	if err := config.check(s); err != nil {
		return nil, fmt.Errorf("%s: %w", dir.Join(PEFTConfigFile), err)
	}
	path := dir.Join(PEFTFile)
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	unread := map[string]safetensors.Info{}
	for _, info := range file.Tensors() {
		unread[info.Name] = info
	}
	factors = map[string][]float32{}
	for _, t := range TensorsOf(list, layout) {
		info, found := unread[t.Name]
		if !found {
			continue
		}
		delete(unread, t.Name)
		if want := []int{len(t.Rows), t.Dims[1]}; !slices.Equal(info.Shape, want) {
			return nil, fmt.Errorf("%s: %s has the shape %v, want %v", path, t.Name, info.Shape, want)
		}
		tensor, err := file.Tensor(t.Name)
		if err != nil {
			return nil, err
		}
		values, err := huggingface.Floats(tensor)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if slices.ContainsFunc(values, func(x float32) bool { return x-x != 0 }) {
			return nil, fmt.Errorf("%s: tensor %s has values that are NaN or infinite", path, t.Name)
		}
		width := t.Dims[1]
		if factors[t.Factor.Name] == nil {
			factors[t.Factor.Name] = make([]float32, t.Dims[0]*width)
			t.Factor.Draw(seed, factors[t.Factor.Name])
		}
		for i, row := range t.Rows {
			copy(factors[t.Factor.Name][row*width:][:width], values[i*width:])
		}
	}
	if len(unread) > 0 {
		return nil, fmt.Errorf("%s: %s are not adapters of weights in adapters.targets", path,
			strings.Join(slices.Sorted(maps.Keys(unread)), ", "))
	}
	return factors, nil
}

// Tensor is a tensor in a file of PEFT, which holds rows of a factor.
type Tensor struct {
	Factor
	Name   string // in the file
	Module string // the last part of the name of the weight's module, such as q_proj
	Rows   []int
}

// TensorsOf lists the tensors of adapters in a file of PEFT, for a model with the given tensors.
func TensorsOf(list []Adapter, layout []huggingface.Mapping) (tensors []Tensor) {
	next := map[string]int{} // part of each weight
	for _, t := range layout {
		i := slices.IndexFunc(list, func(a Adapter) bool { return a.Weight == t.Param.Name })
		if i < 0 {
			continue
		}
		a, module := list[i], strings.TrimSuffix(t.Tensor, ".weight")
		last := module[strings.LastIndexByte(module, '.')+1:]
		rows := make([]int, a.Rank)
		for k := range rows {
			rows[k] = next[a.Weight]*a.Rank + k
		}
		next[a.Weight]++
		tensors = append(tensors,
			Tensor{a.A(), peftPrefix + module + suffixA + ".weight", last, rows},
			Tensor{a.B(), peftPrefix + module + suffixB + ".weight", last, t.Rows})
	}
	return tensors
}
