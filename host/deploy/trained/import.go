package trained

import (
	"cmp"
	"context"
	"errors"
	"io/fs"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/atomicdir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// usualContext is the context of a model that is used as it is, where that has as many positions.
const usualContext = 2048

// Import turns the Hugging Face checkpoint in dir into a run directory: a run that has trained for no steps, with the
// model as its state. context is the number of tokens in a sequence; 0 means the model's number of positions, but at
// most 2048. If out is empty, nothing is written and the checkpoint is only checked.
func Import(ctx context.Context, dir, out string, context int) (*huggingface.Checkpoint, error) {
	if out != "" {
		if err := atomicdir.Check(vfs.At(out)); err != nil {
			return nil, err
		}
	}
	c, cfg, err := OpenHub(dir, out, context)
	if err != nil {
		return nil, err
	}
	err = c.Verify()
	if err == nil && out != "" {
		err = atomicdir.Write(vfs.At(out), func(to vfs.Path) error {
			return importInto(ctx, rundir.Dir{Path: to}, rundir.At(out), vfs.At(dir), c, cfg)
		})
	}
	return c, errors.Join(err, c.Close())
}

// OpenHub opens a checkpoint and makes a configuration for it.
func OpenHub(dir, out string, context int) (*huggingface.Checkpoint, *config.Config, error) {
	if context == 0 {
		// What is wrong with the checkpoint is told when it is opened.
		if c, err := huggingface.ReadConfig(vfs.At(dir), usualContext); err == nil {
			context = min(usualContext, c.MaxPositions)
		}
	}
	c, err := huggingface.Open(vfs.At(dir), huggingface.Options{Context: context})
	if err != nil {
		return nil, nil, err
	}
	cfg, err := config.Imported(dir, cmp.Or(context, min(usualContext, c.Config.MaxPositions)), cmp.Or(out, dir))
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, cfg, nil
}

// importInto writes the run directory, which is named out once it is complete.
func importInto(ctx context.Context, to, out rundir.Dir, from vfs.Path, c *huggingface.Checkpoint, cfg *config.Config) error {
	text, err := cfg.Encode()
	if err != nil {
		return err
	}
	made, err := importedFrom(from, c)
	if err != nil {
		return err
	}
	meta, err := provenance.Metadata(made.Run, provenance.Progress{}, made.Build)
	if err != nil {
		return err
	}
	state := checkpoint.State{Meta: meta}
	for _, p := range c.Params() {
		read := func() ([]float32, error) { return c.Values(p.Name) }
		state.Tensors = append(state.Tensors, safetensors.Lazy(step.ParamName(p.Name), p.Dims, read))
	}
	if _, err := checkpoint.Save(ctx, to.Checkpoints(), state); err != nil {
		return err
	}
	if err := rundir.CopyFiles(to, from, tokenizer.Files); err != nil {
		return err
	}
	if err := made.Write(to); err != nil {
		return err
	}
	m, err := model.New(cfg.Model, model.Options{})
	if err != nil {
		return err
	}
	summary := metrics.Summary{Name: out.Base(), Completed: true, Dir: out.Name, Method: cfg.Method.Name, Form: string(cfg.Method.Form),
		Parameters: int64(architecture.CountParams(m.Params(), nil)), NonEmbedding: int64(architecture.NonEmbedding(m.Params()))}
	if err := metrics.WriteSummary(to.Summary(), summary); err != nil {
		return err
	}
	return atomicfile.WriteBytes(to.Config(), text)
}

// importedFrom is the provenance of a run that was imported.
func importedFrom(dir vfs.Path, c *huggingface.Checkpoint) (*provenance.Record, error) {
	made := &provenance.Record{Run: provenance.NewIdentity()}
	var err error
	if made.Initial, err = provenance.HubOrigin(dir, c); err != nil {
		return nil, err
	}
	if made.Tokenizer, err = HubTokenizer(dir); err != nil {
		return nil, err
	}
	device, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		return nil, err
	}
	defer device.Close()
	made.Build = device.BuildInfo()
	return made, nil
}

// HubTokenizer describes the tokenizer of a checkpoint; nil where it has none.
func HubTokenizer(dir vfs.Path) (*tokenizer.Info, error) {
	tok, err := tokenizer.LoadHuggingFace(dir.Join(tokenizer.DefinitionFile).Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info := tok.Info()
	return &info, nil
}
