package trained

import (
	"cmp"
	"context"
	"errors"
	"io/fs"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicdir"
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
			made, err := importedFrom(vfs.At(dir), c)
			if err != nil {
				return err
			}
			held := &Held{Config: cfg, Method: cfg.Method, Record: made, Params: c.Params(), Values: c.Values, From: dir}
			return held.Write(ctx, rundir.Dir{Path: to})
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

// importedFrom is the provenance of a run that was imported.
func importedFrom(dir vfs.Path, c *huggingface.Checkpoint) (*Record, error) {
	made := &Record{}
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
