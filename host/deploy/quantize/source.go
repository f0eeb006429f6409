package quantize

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
)

// source is a model that is to be quantized: weights that are read one by one, and what is known of them.
type source struct {
	dir    string
	cfg    *config.Config
	search rundir.Search
	made   *trained.Record // of a run; of a checkpoint of the hub, its tokenizer
	origin *provenance.Origin
	values func(param string) ([]float32, error)
	// trained reads trained parameters of the run's own quantizers; nil where there are none.
	trained func(param, name string) ([]float32, error)
}

// withSource opens a run or a Hugging Face checkpoint while it is used.
func withSource(dir string, o Options, use func(*source) error) error {
	if trained.IsHub(dir) {
		return withHubSource(dir, o, use)
	}
	if o.Context > 0 {
		return fmt.Errorf("%s: the context of a run is fixed: leave --context out", dir)
	}
	cfg, err := rundir.At(dir).LoadConfig()
	if err != nil {
		return err
	}
	if err := trained.CheckSaved(dir, o.Step); err != nil {
		return err
	}
	made, err := trained.ReadRecord(rundir.At(dir))
	if err != nil {
		return err
	}
	if made.Posttrained != nil {
		return fmt.Errorf("%s was quantized after its training already: quantize the run that it was made of", dir)
	}
	s := &source{dir: dir, cfg: cfg, made: made, search: rundir.Search{Run: dir, Made: made.Directory}}
	from := func(f *checkpoint.File) error {
		if err := s.openCheckpoint(f); err != nil {
			return err
		}
		return use(s)
	}
	return checkpoint.Use(rundir.At(dir).Checkpoints(), o.Step, from)
}

// openCheckpoint reads weights from a checkpoint of the run.
func (s *source) openCheckpoint(f *checkpoint.File) error {
	run := rundir.At(s.dir)
	if err := s.made.CheckOwner(run, f.Step, f.Meta); err != nil {
		return err
	}
	path, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	s.origin = &provenance.Origin{Path: path, Run: s.made.Run, Step: f.Step, End: s.made.Initial.Ends(),
		Files: []huggingface.Part{{File: filepath.Join(run.Checkpoints().Base(), checkpoint.FileName(f.Step)), SHA256: f.Digest()}}}
	read := func(name string) ([]float32, error) {
		t, err := f.Tensor(name)
		if err != nil {
			return nil, err
		}
		return safetensors.Values[float32](t)
	}
	s.values = func(param string) ([]float32, error) { return read(step.ParamName(param)) }
	s.trained = func(param, name string) ([]float32, error) { return read(step.TrainedName(param, name)) }
	return nil
}

func withHubSource(dir string, o Options, use func(*source) error) (err error) {
	if o.Step > 0 {
		return fmt.Errorf("%s is a Hugging Face checkpoint, which has no steps: leave the step out", dir)
	}
	c, cfg, err := trained.OpenHub(dir, o.Out, o.Context)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, warning := range c.Config.Warnings {
		o.Logger.Warn(warning)
	}
	s := &source{dir: dir, cfg: cfg, made: &trained.Record{}, search: rundir.Search{Run: dir}, values: c.Values}
	if s.origin, err = provenance.HubOrigin(vfs.At(dir), c); err != nil {
		return err
	}
	if s.made.Tokenizer, err = trained.HubTokenizer(vfs.At(dir)); err != nil {
		return err
	}
	if err := use(s); err != nil {
		return err
	}
	return c.Err()
}
