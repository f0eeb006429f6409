package ruler

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// DefaultBatch is the number of prompts that are answered at once unless another is asked for.
const DefaultBatch = 8

// Model answers prompts with at most newTokens tokens each.
type Model func(ctx context.Context, prompts []string, newTokens int) ([]string, error)

// Answer is a model's answer to a sample, with the fields that RULER stores.
type Answer struct {
	Index int `json:"index"`
	// Pred is the answer without its prefix.
	Pred string `json:"pred"`
	// Input is everything that the model read: input and answer prefix of the sample.
	Input   string   `json:"input"`
	Outputs []string `json:"outputs"`
	// Others and Truncation have no meaning here; RULER's evaluation expects them.
	Others     struct{} `json:"others"`
	Truncation int      `json:"truncation"`
	Length     int      `json:"length"`
}

// Ask asks a model the prompts of a plan, batch of them at once, except those that it has
// already answered. Each answer is on disk before the next batch is asked.
func (d Directory) Ask(ctx context.Context, p Plan, m Model, batch int) error {
	lock, err := d.lock()
	if err != nil {
		return err
	}
	for _, length := range p.Lengths {
		for _, t := range p.Tasks {
			if err == nil {
				err = d.ask(ctx, p, t, length, m, batch)
			}
		}
	}
	return errors.Join(err, lock.Unlock())
}

func (d Directory) ask(ctx context.Context, p Plan, t Task, length int, m Model, batch int) (err error) {
	path := d.answers(length, t)
	if err := path.Dir().MkdirAll(); err != nil {
		return err
	}
	next, stop := iter.Pull2(jsonlines.Read[Sample](d.prompts(length, t)))
	defer stop()
	done, size, list, err := skipAnswered(path, next, p.Samples, batch)
	if err != nil {
		return err
	}
	log, err := jsonlines.Continue[Answer](path, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	for {
		for len(list) < batch {
			s, err, ok := next()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			list = append(list, s.Value)
		}
		if len(list) == 0 {
			return nil
		}
		if err := answer(ctx, log, t, m, list); err != nil {
			return err
		}
		done += len(list)
		p.progress("answers", t, length, done)
		list = nil
	}
}

// skipAnswered goes on to the first sample without an answer, and returns how many have one. After size bytes of the
// file, the last whole batch of answers, it is to be cut off, and the samples of the rest are returned to be asked
// again: a model may answer a little differently in other company, and a file shall not depend on where it was
// interrupted. A line that is no answer, as a loss of power may leave it, ends the answers.
func skipAnswered(path vfs.Path, next func() (jsonlines.Entry[Sample], error, bool), samples, batch int) (done int, size int64, again []Sample, err error) {
	for a, err := range jsonlines.Read[Answer](path) {
		if _, damaged := errors.AsType[*jsonlines.Error](err); damaged || missing(err) {
			break
		}
		if err != nil {
			return 0, 0, nil, err
		}
		s, err, ok := next()
		if err != nil {
			return 0, 0, nil, err
		}
		if !ok || s.Value.Prompt() != a.Value.Input || a.Value.Outputs == nil {
			return 0, 0, nil, fmt.Errorf("%s: line %d answers another prompt: move the file away", path, a.Line)
		}
		if again = append(again, s.Value); len(again) == batch || done+len(again) == samples {
			size, done, again = a.End, done+len(again), nil
		}
	}
	return done, size, again, nil
}

// answer asks for the answers to some samples and appends them to a file.
func answer(ctx context.Context, log *jsonlines.Log[Answer], t Task, m Model, list []Sample) error {
	var prompts []string
	for _, s := range list {
		prompts = append(prompts, s.Prompt())
	}
	texts, err := m(ctx, prompts, t.NewTokens)
	if err != nil {
		return err
	}
	if len(texts) != len(list) {
		return fmt.Errorf("the model gave %d answers to %d prompts", len(texts), len(list))
	}
	answers := make([]Answer, len(list))
	for i, s := range list {
		answers[i] = Answer{Index: s.Index, Pred: texts[i], Input: prompts[i], Outputs: s.Outputs, Truncation: -1, Length: s.Length}
	}
	if err := log.Append(answers...); err != nil {
		return err
	}
	return log.Sync()
}
