package provenance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

// UseWeights calls use with a function that loads the tensors of a checkpoint of the run in dir,
// for a model that is used but not trained further; see [evaluated]. A checkpoint of adapters has
// no weights: those of the run's initial model are read again, and merged with the adapters.
func UseWeights(
	dir rundir.Dir, made *Record, f *checkpoint.File, use func(step.LoadFunc) error,
) error {
	load := evaluated(f)
	if !slices.ContainsFunc(f.Infos(), func(info safetensors.Info) bool {
		return strings.HasPrefix(info.Name, string(program.KindParam)+"/") && lora.IsFactor(info.Name)
	}) {
		return use(load)
	}
	if made.Initial == nil {
		return fmt.Errorf("the checkpoint holds adapters alone, but %s has no \"initial\": it is "+
			"unknown for which weights they were trained", dir.Provenance())
	}
	cfg, err := dir.LoadConfig()
	if err != nil {
		return err
	}
	m, err := build.Model(cfg)
	if err != nil {
		return err
	}
	var found *config.Initial
	search := rundir.Search{Run: dir.Name, WorkDir: made.Directory}
	_, err = search.Find(cfg.Init, func(path string) (err error) {
		found, err = config.ReadInitial(path, cfg.Model.Context)
		return err
	})
	if err != nil {
		return fmt.Errorf("the checkpoint holds adapters alone: %w", err)
	}
	dev, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	adapters := map[string]lora.Adapter{}
	for _, a := range cfg.Adapters.Of(cfg.Model) {
		adapters[program.KindParam.Of(a.Weight)] = a
	}
	from, err := LoadInitial(found, cfg.Model, m, func(initial step.LoadFunc) error {
		base := func(name string) (step.Tensor, error) {
			t, err := initial(name)
			if err == nil && cfg.Adapters.Base == lora.BFloat16 { // as in training
				loops.RoundToBFloat16(t.Data, t.Data)
			}
			return t, err
		}
		return use(Overlaid(base, m, func(name string) (step.Tensor, error) {
			a, adapted := adapters[name]
			if !adapted {
				return load(name)
			}
			w, wErr := base(name)
			A, aErr := load(program.KindParam.Of(a.A().Name))
			B, bErr := load(program.KindParam.Of(a.B().Name))
			if err := errors.Join(wErr, aErr, bErr); err != nil {
				return w, err
			}
			w.Data, err = step.MergeAdapter(dev, a, w.Data, A.Data, B.Data)
			return w, err
		}, func(name string) bool {
			_, adapted := adapters[name]
			return adapted || f.Has(name)
		}))
	})
	if err == nil && !slices.Equal(from.Digests(), made.Initial.Digests()) {
		err = fmt.Errorf("%s does not contain the weights that the adapters were trained for (%s)",
			from, made.Initial)
	}
	return err
}

// evaluated is like [Tensors], for a model that is used but not trained further: for a parameter it
// returns the values used in evaluation, if the optimizer or train.average computed such values.
func evaluated(f *checkpoint.File) step.LoadFunc {
	load := Tensors(f)
	return func(name string) (step.Tensor, error) {
		for _, other := range step.EvaluationNames(name) {
			if f.Has(other) {
				t, err := load(other)
				t.Name = name
				return t, err
			}
		}
		return load(name)
	}
}

// Tensors returns a function that reads a tensor of a checkpoint by name.
func Tensors(f *checkpoint.File) step.LoadFunc {
	return func(name string) (step.Tensor, error) {
		t, err := f.Tensor(name)
		if err != nil {
			return step.Tensor{}, err
		}
		values, err := checkpoint.Floats(t)
		return step.Tensor{Name: name, Dims: t.Shape, Data: values}, err
	}
}

// Factor loads a factor of an adapter, for a model that is used but not trained further.
func Factor(f *checkpoint.File, name string) (step.Tensor, error) {
	return evaluated(f)(program.KindParam.Of(name))
}

// Overlaid returns a function that loads those parameters of a model from base that over does not
// have, and all else from over.
func Overlaid(base step.LoadFunc, m model.Model, over step.LoadFunc,
	has func(name string) bool) step.LoadFunc {
	params := map[string]bool{}
	for _, p := range m.Params() {
		params[program.KindParam.Of(p.Name)] = true
	}
	return func(name string) (step.Tensor, error) {
		if params[name] && !has(name) {
			return base(name)
		}
		return over(name)
	}
}

// LoadInitial calls use with the weights of the model in found, read as those of m with settings s.
func LoadInitial(found *config.Initial, s architecture.Settings, m model.Model,
	use func(step.LoadFunc) error) (*Origin, error) {
	if found.Run {
		return LoadRun(rundir.At(found.Dir), use)
	}
	return loadHub(vfs.At(found.Dir), s, m, use)
}

// loadHub calls use with the weights of a Hugging Face checkpoint.
func loadHub(dir vfs.Path, s architecture.Settings, m model.Model,
	use func(step.LoadFunc) error) (from *Origin, err error) {
	c, err := huggingface.Open(dir, huggingface.Options{Context: s.Context, Pairs: s.RopePairs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := use(step.LoadParams(m, c.Values)); err != nil {
		return nil, err
	}
	if err := c.Err(); err != nil { // before the files are read again, for their hashes
		return nil, err
	}
	return HubOrigin(dir, c)
}
