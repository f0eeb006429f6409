package export

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// planPEFT plans the adapters of a run as PEFT stores them, without the weights that they are for.
func planPEFT(m *Model, o Options) (*Plan, error) {
	if o.Type != "" || cmp.Or(o.Float, floatF32) != floatF32 {
		return nil, errors.New("format peft stores the factors of adapters in f32: leave out --type and " +
			"--dtype")
	}
	if len(m.Adapters) == 0 {
		return nil, errors.New("the run has no adapters ([adapters]): want another format")
	}
	p := &hubPlan{source: &source{Model: m}, float: floatF32}
	var modules []string
	for _, t := range lora.TensorsOf(m.Adapters) {
		modules = append(modules, t.Module[strings.LastIndexByte(t.Module, '.')+1:])
		param := architecture.Param{Name: t.Factor.Name, Dims: t.Dims}
		p.stored = append(p.stored, Stored{Name: t.Name, Param: param.Name, Type: floatF32,
			Shape: []int{len(t.Rows), t.Columns},
			part:  part{Param: param, Rows: t.Rows, Columns: t.Columns}})
	}
	slices.Sort(modules)
	config := lora.PEFTConfig{Type: "LORA", Task: lora.CausalTask, Base: m.Base, Rank: m.LoRA.Rank,
		Alpha: m.LoRA.Alpha, RSLoRA: m.LoRA.RSLoRA, Ranks: m.LoRA.Ranks, Alphas: m.LoRA.Alphas,
		Targets: slices.Compact(modules), Bias: "none"}
	plan := p.plan()
	plan.Notes = []string{"the adapters are for the weights before their quantization: programs " +
		"that merge them do not quantize the sum"}
	if m.Base == "" {
		plan.Notes = append(plan.Notes, lora.PEFTConfigFile+" has no base_model_name_or_path, for "+
			"neither the model nor adapters.init names a repository: load the model by its path, and "+
			"the adapters with PeftModel.from_pretrained")
	}
	plan.Write = func(ctx context.Context, dir vfs.Path) error {
		var tensors []safetensors.Tensor
		for _, t := range p.stored {
			tensors = append(tensors, p.plain(t))
		}
		return errors.Join(atomicfile.WriteJSON(dir.Join(lora.PEFTConfigFile), config),
			safetensors.WriteFile(ctx, dir.Join(lora.PEFTFile), tensors, map[string]string{"format": "pt"}))
	}
	plan.Read = func(dir vfs.Path, each func(name string, values []float32) error) (err error) {
		path := dir.Join(lora.PEFTFile)
		file, err := safetensors.Open(path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		return readTensors(path, file, each)
	}
	return plan, nil
}
