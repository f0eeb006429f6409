package trained

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
)

// IsHub tells whether a directory holds a Hugging Face checkpoint and no run.
func IsHub(dir string) bool {
	run, err := rundir.At(dir).Config().Exists()
	return !run && err == nil && huggingface.IsCheckpoint(vfs.At(dir))
}

// openFromHub opens the Hugging Face checkpoint in a directory, which is used as it is: in full precision.
func openFromHub(ctx context.Context, dir string, o Options) (*Model, error) {
	if o.Step > 0 {
		return nil, fmt.Errorf("%s is a Hugging Face checkpoint, which has no steps: leave the step out", dir)
	}
	if o.Data == "" && !o.NoData {
		return nil, fmt.Errorf("%s is a Hugging Face checkpoint, which has no validation set: name a token or chat file with --data", dir)
	}
	c, cfg, err := OpenHub(dir, "", o.Context)
	if err != nil {
		return nil, err
	}
	for _, warning := range c.Config.Warnings {
		o.Logger.Warn(warning)
	}
	t := &Model{dir: dir, cfg: cfg, hub: c, made: &Record{Record: provenance.Record{Initial: &provenance.Origin{End: c.Config.Tokens.End}}}, search: rundir.Search{Run: dir}, other: o.Quantizer != nil, sequences: o.Generate}
	if t.made.Tokenizer, err = HubTokenizer(vfs.At(dir)); err == nil {
		err = t.open(ctx, o)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// loadHub loads the parameters.
func (t *Model) loadHub() error {
	var err error
	t.state, err = t.upload(step.LoadParams(t.built.Compiled.Plan().Model, t.hub.Values))
	if err != nil {
		return err
	}
	return t.hub.Err()
}
