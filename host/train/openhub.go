package train

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
)

// onlyHub tells whether a directory holds a Hugging Face checkpoint and no run.
func onlyHub(dir string) bool {
	run, err := rundir.At(dir).Config().Exists()
	return !run && err == nil && huggingface.IsCheckpoint(vfs.At(dir))
}

// openFromHub opens the Hugging Face checkpoint in a directory, which is used as it is: in full precision.
func openFromHub(ctx context.Context, dir string, o OpenOptions) (*Trained, error) {
	if o.Step > 0 {
		return nil, fmt.Errorf("%s is a Hugging Face checkpoint, which has no steps: leave the step out", dir)
	}
	if o.Data == "" && !o.NoData {
		return nil, fmt.Errorf("%s is a Hugging Face checkpoint, which has no validation set: name a token or chat file with --data", dir)
	}
	c, cfg, err := openHub(dir, "", o.Context)
	if err != nil {
		return nil, err
	}
	for _, warning := range c.Config.Warnings {
		o.Logger.Warn(warning)
	}
	t := &Trained{dir: dir, cfg: cfg, hub: c, made: &provenance{Initial: &origin{End: c.Config.Tokens.End}}, search: rundir.Search{Run: dir}, other: o.Quantizer != nil, sequences: o.Generate}
	if t.made.Tokenizer, err = hubTokenizer(vfs.At(dir)); err == nil {
		err = t.open(ctx, o)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// loadHub loads the parameters.
func (t *Trained) loadHub() error {
	var err error
	t.state, err = t.upload(step.LoadParams(t.compiled.Plan().Model, t.hub.Values))
	if err != nil {
		return err
	}
	return t.hub.Err()
}
