package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

// A run with model.init in its configuration starts from the weights of another model. It takes
// only that model's parameters: optimizers and trained quantizers start as in any run. Only if the
// model was quantized after training by the same quantizer do the quantizers start from the scales
// that it has, so that Q(W) = W at first.

func (r *run) startFrom(ctx context.Context, tokens []int32) (*step.State, error) {
	found, err := r.findInitial()
	if err != nil {
		return nil, err
	}
	if err := r.sameTokens("model.init", found, r.initial); err != nil {
		return nil, err
	}
	if err := r.readFactors(); err != nil {
		return nil, r.cfg.ErrorAt("adapters.init", "%w", err)
	}
	scales, err := r.quantizedAlike(found)
	if err != nil {
		return nil, r.cfg.ErrorAt("model.init", "%w", err)
	}
	state, from, err := r.readInitial(found, func(load step.LoadFunc) (*step.State, error) {
		return r.Compiled.NewStateFrom(ctx, load, tokens, scales)
	})
	if err != nil {
		return nil, err
	}
	if len(scales) > 0 {
		r.log.Info("quantizers start from the scales of model.init", "tensors", len(scales))
	}
	r.initial, r.startedFrom = from, found.Dir
	r.log.Info("starting from the weights of model.init",
		"path", r.initial.Path, "step", r.initial.Step)
	for _, stored := range r.initial.Stored {
		r.log.Info("in model.init " + stored)
	}
	if r.cfg.Adapters.Rank > 0 {
		trained, frozen := 0, architecture.CountParams(r.model.Params(), nil)
		plan, bytes := r.Compiled.Plan(), int64(0)
		for _, a := range plan.Adapters {
			trained += a.Size()
		}
		r.log.Info("training adapters", "parameters", trained, "frozen", frozen)
		for _, p := range plan.Packed {
			bytes += p.Bytes()
		}
		if bytes > 0 {
			r.log.Info("quantized weights of model.init are stored as codes and scales", "weights",
				len(plan.Packed), "memory", build.Bytes(float64(bytes)))
		}
	}
	if n := r.cfg.NewTokens; n > 0 {
		r.log.Info("the vocabulary has grown", "new token ids", n, "first", found.Settings.Vocab)
	}
	return state, nil
}

// quantizedAlike returns the names of the tensors that quantizers of weights can take from a model
// that was quantized after training: those of weights with the same program.
func (r *run) quantizedAlike(found *config.Initial) (names []string, err error) {
	if !found.Run {
		return nil, nil
	}
	dir := rundir.At(found.Dir)
	made, err := provenance.Read(dir)
	if err != nil {
		return nil, err
	}
	own := r.Programs.Hashes()
	return names, checkpoint.Use(dir.Checkpoints(), 0, func(f *checkpoint.File) error {
		for weight, q := range r.Programs.Weights {
			program := "weight " + weight + ": quantize"
			if f.Step > 0 || made.Programs[program] != own[program] { // trained, or by another quantizer
				continue
			}
			for _, in := range q.ForEvaluation().Program.Inputs[1:] {
				if name := step.QuantizerInput(weight, q.Trained, in.Name); f.Has(name) {
					names = append(names, name)
				}
			}
		}
		return nil
	})
}

// readFactors reads the initial factors of adapters from adapters.init.
func (r *run) readFactors() error {
	dir := r.cfg.Adapters.Init
	if dir == "" {
		return nil
	}
	plan := r.Compiled.Plan()
	factors, missing, err := r.cfg.Adapters.Load(plan.Seed, vfs.At(dir), plan.Adapters)
	if len(missing) > 0 {
		r.log.Warn("adapters.init has no factors for some modules, which get new initial ones",
			"modules", lora.Few(missing))
	}
	r.Compiled.SetFactors(factors)
	return err
}

// readInitial makes a state from the weights of the model in found, which must be those that the
// run started from, if it has begun.
func (r *run) readInitial(found *config.Initial,
	make func(step.LoadFunc) (*step.State, error),
) (state *step.State, from *provenance.Origin, err error) {
	from, err = r.readWeights(found, r.cfg.Model, r.model, func(load step.LoadFunc) (err error) {
		state, err = make(load)
		return err
	})
	if err == nil && r.initial != nil && !slices.Equal(r.initial.Digests(), from.Digests()) {
		err = fmt.Errorf("the weights in %s (%s) are not those that the run started from (%s): "+
			"restore those to resume it", found.Dir, from, r.initial)
	}
	if err != nil {
		if state != nil {
			state.Close()
		}
		return nil, nil, r.cfg.ErrorAt("model.init", "%w", err)
	}
	return state, from, nil
}

func (r *run) findInitial() (*config.Initial, error) {
	found, err := config.ReadInitial(r.cfg.Init, r.cfg.Model.Context)
	if err != nil {
		return nil, r.cfg.ErrorAt("model.init", "%w", err)
	}
	return found, r.cfg.CheckInitial(found)
}

// sameTokens fails if the data's tokenizer is not that of a model whose weights are read, unless
// the configuration allows that or the run has read such weights before: then origin is not nil.
func (r *run) sameTokens(key string, found *config.Initial, origin *provenance.Origin) error {
	if origin != nil || r.cfg.Data.Mismatch == config.MismatchAllow {
		return nil
	}
	tokens, err := provenance.TokensOf(found.Dir, found.Run, r.cfg.Model.Vocab)
	if err == nil {
		err = tokens.Check(r.data.Train, r.cfg.Data.Tokenizer, r.log)
	}
	if err != nil {
		return r.cfg.ErrorAt(key, "%w", err).
			WithHint(`data.tokenizer_mismatch = "allow" disables this check`)
	}
	return nil
}

// readWeights reads the weights of the model in found as those of a model with settings s, which
// may have more token ids.
func (r *run) readWeights(found *config.Initial, s architecture.Settings, m model.Model,
	use func(step.LoadFunc) error) (*provenance.Origin, error) {
	if n := s.Vocab - found.Settings.Vocab; n > 0 {
		s.Vocab = found.Settings.Vocab
		// The rows of new ids, in the embedding and in the output head, are copies of the row of
		// another token, or of the mean of all rows.
		rows := map[string]bool{}
		for _, p := range m.Params() {
			if p.Role == architecture.RoleEmbedding || p.Role == architecture.RoleHead {
				rows[program.KindParam.Of(p.Name)] = true
			}
		}
		var err error
		if m, err = model.New(s, model.Options{}); err != nil {
			return nil, err
		}
		ungrown := use
		use = func(load step.LoadFunc) error {
			return ungrown(func(name string) (step.Tensor, error) {
				t, err := load(name)
				if err != nil || !rows[name] {
					return t, err
				}
				width := t.Dims[1]
				row := make([]float32, width)
				if from := r.cfg.NewRowsFrom; from != nil {
					copy(row, t.Data[*from*width:])
				} else {
					sums := make([]float64, width)
					for i, x := range t.Data {
						sums[i%width] += float64(x)
					}
					for i, sum := range sums {
						row[i] = float32(sum / float64(t.Dims[0]))
					}
				}
				data := slices.Concat(t.Data, slices.Repeat(row, n))
				return step.Tensor{Name: name, Dims: []int{t.Dims[0] + n, width}, Data: data}, nil
			})
		}
	}
	return provenance.LoadInitial(found, s, m, use)
}

// The weights of a teacher are read whenever a run begins or resumes, and are in no checkpoint. The
// provenance has their digests, so that a run resumes only with the same teacher.

// loadTeacher loads the teacher of the run, if it has one. If the teacher is the initial model, a
// new run copies its own weights, unless other processes have rows of them. Otherwise the weights
// are read from files, which must have the digests recorded by the run.
func (r *run) loadTeacher() error {
	d := r.Compiled.Plan().Distillation
	if d == nil {
		return nil
	}
	initial := r.cfg.Train.Distillation.Teacher == config.TeacherInitial
	isNew := r.state != nil && r.saving.step < 0 && r.teacher == nil
	if initial && isNew && !r.state.Elsewhere() && r.cfg.Adapters.Rank == 0 {
		r.teacher = r.initial
		tensors := map[string]step.Stored{}
		for _, x := range r.Compiled.Stored(r.state) {
			tensors[x.Name] = x
		}
		return r.Compiled.LoadTeacher(func(name string) (step.Tensor, error) {
			x, ok := tensors[name]
			if !ok {
				return step.Tensor{}, fmt.Errorf("the state has no %s", name)
			}
			data, err := x.Read()
			return step.Tensor{Name: name, Dims: x.Dims, Data: data}, err
		})
	}
	fail := func(err error) error { return r.cfg.ErrorAt("train.distillation.teacher", "%w", err) }
	s, err := build.TeacherSettings(r.cfg)
	if err != nil {
		return err
	}
	var found *config.Initial
	if initial {
		found, err = r.findInitial()
	} else if found, err = config.ReadInitial(r.cfg.TeacherDir(), r.cfg.Model.Context); err != nil {
		err = fail(err)
	}
	if err != nil {
		return err
	}
	if err := r.sameTokens("train.distillation.teacher", found, r.teacher); err != nil {
		return err
	}
	from, err := r.readWeights(found, s, d.Teacher, r.Compiled.LoadTeacher)
	if err != nil {
		return fail(err)
	}
	if r.teacher != nil && !slices.Equal(r.teacher.Digests(), from.Digests()) {
		return fail(fmt.Errorf("%s does not contain the weights of the run's teacher (%s)",
			from.Path, r.teacher))
	}
	r.teacher = from
	r.log.Info("learning from a teacher", "path", from.Path, "step", from.Step)
	return nil
}
