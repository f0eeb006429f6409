package trained

import (
	"fmt"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
)

// A run directory is often used in another place, or on another machine, than it was
// trained in. This file looks for what it does not hold itself.

// openData opens the token file or chat file to evaluate on, of whichever kind the data of the training was.
func (t *Model) openData(o Options) error {
	if !t.cfg.Model.Language() {
		if o.Data != "" {
			return fmt.Errorf("%s: a model of kind %q is not evaluated on data", t.dir, t.cfg.Model.Kind)
		}
		return nil
	}
	var err error
	switch {
	case o.NoData:
		return nil
	case o.Data == "" && t.cfg.Data.Validation == "":
		return fmt.Errorf("%s has no validation data of its own: name a token or chat file with --data", t.dir)
	case o.Data == "":
		if t.data, err = assembly.FindValidation(t.cfg, t.search); err != nil {
			return fmt.Errorf("%w\nname a token or chat file with --data", err)
		}
		return nil
	}
	if t.data, err = dataset.Open(o.Data); err != nil {
		return err
	}
	if err := t.checkTokenizer(o); err != nil {
		return err
	}
	t.cfg, err = t.cfg.Changed(func(c *config.Config) error {
		c.Data.SetKind(assembly.KindOf(t.data))
		return nil
	})
	return err
}

// checkTokenizer compares the tokenizer of the file to evaluate on with that of the model.
func (t *Model) checkTokenizer(o Options) error {
	want, err := t.tokenizerInfo()
	if err != nil {
		o.Logger.Warn("the run does not say what its tokenizer is: it is not known whether this file was made with it", "file", o.Data)
		return nil
	}
	if got := t.data.Tokenizer(); got.SHA256 != want.SHA256 {
		return fmt.Errorf("%s was made with the tokenizer %s, that of the model is %s: prepare the text with its tokenizer (cage data prepare --tokenizer)", o.Data, got.Name, want.Name)
	}
	return nil
}

// tokenizerInfo says what the data of the run was made with. Only a checkpoint of the hub, or a run that was imported from
// one, may not know.
func (t *Model) tokenizerInfo() (tokenizer.Info, error) {
	if t.made.Tokenizer == nil {
		return tokenizer.Info{}, fmt.Errorf("%s has no %s", t.dir, tokenizer.DefinitionFile)
	}
	return *t.made.Tokenizer, nil
}

// tokenizer opens the tokenizer of the run.
func (t *Model) tokenizer() (tokenizer.Tokenizer, error) {
	info, err := t.tokenizerInfo()
	if err != nil {
		return nil, err
	}
	return assembly.FindTokenizer(t.cfg, t.search, info)
}

// comparePrograms warns when quantizers are not those of training. Programs of
// activations depend on the batch and are compared only at the run's own.
func (t *Model) comparePrograms(o Options) {
	same := *t.built.Programs
	if o.Generate > 0 {
		same.Activations = nil
	}
	if changed := assembly.Changed(t.made.Programs, same.Hashes()); len(changed) > 0 {
		o.Logger.Warn("a quantizer has changed since the run: this is not the model that was trained", "programs", len(changed), "first", changed[0])
	}
}
