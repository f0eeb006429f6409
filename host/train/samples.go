package train

import (
	"context"
	"slices"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
)

// samples are the prompts of train.samples, and the file of what the model writes after them.
type samples struct {
	tokenizer tokenizer.Tokenizer
	ids       [][]int32
	file      *metrics.Writer[metrics.Sample] // nil before there is a run directory
}

// readPrompts encodes the prompts of train.samples, before there is a run directory: a run that cannot read them does not
// begin, and leaves nothing behind.
func (r *run) readPrompts() error {
	asked := r.cfg.Train.Samples
	if len(asked) == 0 {
		return nil
	}
	tok, err := r.openTokenizer()
	if err != nil {
		return err
	}
	r.samples = &samples{tokenizer: tok}
	for _, text := range asked {
		ids, err := build.Beginning(r.cfg, tok, text)
		if err != nil {
			return r.cfg.ErrorAt("train.samples", "%q: %w", text, err)
		}
		r.samples.ids = append(r.samples.ids, ids)
	}
	return nil
}

// openTokenizer opens the tokenizer of the data where the data has it, or else the copy in the directory of a run that is
// resumed. Both have the same hash.
func (r *run) openTokenizer() (tokenizer.Tokenizer, error) {
	info := r.data.Train.Tokenizer()
	if content, err := r.data.Definition(r.cfg); err == nil {
		return tokenizer.Restore(content, info)
	}
	return build.FindTokenizer(r.cfg, rundir.Search{Run: r.dir.Name}, info)
}

// openSamples begins samples.jsonl, or goes on with it after the last evaluation that is recorded.
func (r *run) openSamples() error {
	if r.samples == nil {
		return nil
	}
	after := r.done.Step
	if r.evaluated < after {
		after-- // killed between the texts and the record of an evaluation, it does both again
	}
	file, err := metrics.Resume[metrics.Sample](r.dir.Samples(), after)
	if err != nil {
		return err
	}
	r.warnOfDamage(file.Damage())
	r.samples.file = file
	return nil
}

// sample lets the model continue the prompts of train.samples, and writes what it says. When
// the context ends first, nothing is written. It fails when the run directory is not the run's
// any more. Any other error is a warning: texts are to look at, and no reason to end a training.
func (r *run) sample(ctx context.Context) (written bool, err error) {
	if r.samples == nil {
		return true, nil
	}
	texts, err := r.continuations(ctx)
	if ctx.Err() != nil {
		return false, nil // the resumed run does it
	}
	if gone := r.checkDirectory(); gone != nil {
		return false, gone
	}
	if err == nil {
		err = r.samples.file.Write(metrics.Sample{Step: r.done.Step, Texts: texts})
	}
	if err != nil {
		r.log.Warn("there are no texts of this step: training goes on", "step", r.done.Step, "error", err)
	}
	return true, nil
}

func (r *run) continuations(ctx context.Context) ([]metrics.Text, error) {
	e, err := r.Compiled.Evaluator(r.state)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	t, tok := r.cfg.Train, r.samples.tokenizer
	files := map[string][]byte{}
	if err := rundir.ReadFiles(files, r.dir.Path, tokenizer.CompanionFiles); err != nil {
		return nil, err
	}
	next, err := generate.Continue(ctx, liveModel{e, r.cfg.Model.Context}, r.samples.ids, generate.Options{
		Tokens: t.SampleTokens, Temperature: t.SampleTemperature, Stop: slices.Concat(r.initial.Ends(), chat.Ends(files, tok)), Vocab: tok.Info().VocabSize, Seed: uint64(r.cfg.Seed),
	}, nil)
	if err != nil {
		return nil, err
	}
	var texts []metrics.Text
	for i, ids := range next {
		text, err := generate.Following(tok, generate.LastOf(t.Samples[i], r.samples.ids[i]), ids)
		if err != nil {
			return nil, err
		}
		texts = append(texts, metrics.Text{Prompt: t.Samples[i], Text: text})
	}
	return texts, nil
}

type liveModel struct {
	evaluator *step.Evaluator
	context   int
}

func (w liveModel) Context() int { return w.context }

func (w liveModel) Begin(prompts [][]int32, length int) (generate.Sequences, []float32, error) {
	return w.evaluator.Begin(prompts, length)
}
