package ruler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/cage-qat/cage/internal/vfs"
)

// Model answers prompts with at most newTokens tokens each.
type Model func(ctx context.Context, prompts []string, newTokens int) ([]string, error)

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
	f, err := path.OpenFile(os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := path.Dir().SyncDir(); err != nil { // the name is to be as durable as the answers
		return err
	}
	next, stop := iter.Pull2(read[Sample](d.prompts(length, t)))
	defer stop()
	done, list, err := skipAnswered(f, path, next, p.Samples, batch)
	for err == nil {
		var more []Sample
		if more, err = take(next, batch-len(list)); err != nil {
			break
		}
		if list = append(list, more...); len(list) == 0 {
			break
		}
		if err = answer(ctx, f, t, m, list); err == nil {
			done += len(list)
			p.progress("answers", t, length, done)
		}
		list = nil
	}
	return err
}

// skipAnswered goes on to the first sample without an answer. What follows the last whole
// batch is cut off, and its samples are returned: a model may answer a little differently
// in other company, and a file shall not depend on where it was interrupted. A line that is
// no answer, as a loss of power may leave it, is cut off with all that follows it.
func skipAnswered(f vfs.File, path vfs.Path, next func() (Sample, error, bool), samples, batch int) (done int, again []Sample, err error) {
	whole := int64(0)
	for l, err := range lines[Answer](f) {
		if errors.As(err, new(*damage)) {
			break
		}
		if err != nil {
			return done, nil, err
		}
		s, err, ok := next()
		if err != nil {
			return done, nil, err
		}
		if !ok || s.Prompt() != l.value.Input || l.value.Outputs == nil {
			return done, nil, fmt.Errorf("%s: line %d answers another prompt: move the file away", path, done+len(again)+1)
		}
		if again = append(again, s); len(again) == batch || done+len(again) == samples {
			whole, done, again = l.end, done+len(again), nil
		}
	}
	return done, again, f.Truncate(whole)
}

// take returns the next samples, at most n.
func take(next func() (Sample, error, bool), n int) (list []Sample, err error) {
	for len(list) < n {
		s, err, ok := next()
		if err != nil || !ok {
			return list, err
		}
		list = append(list, s)
	}
	return list, nil
}

// answer asks for the answers to some samples and appends them to a file.
func answer(ctx context.Context, f vfs.File, t Task, m Model, list []Sample) error {
	var prompts []string
	for _, s := range list {
		prompts = append(prompts, s.Prompt())
	}
	said, err := m(ctx, prompts, t.NewTokens)
	if err != nil {
		return err
	}
	if len(said) != len(list) {
		return fmt.Errorf("the model gave %d answers to %d prompts", len(said), len(list))
	}
	var text bytes.Buffer
	for i, s := range list {
		a := Answer{Index: s.Index, Pred: said[i], Input: prompts[i], Outputs: s.Outputs, Truncation: -1, Length: s.Length}
		if err := writeLine(&text, a); err != nil {
			return err
		}
	}
	if _, err := f.Write(text.Bytes()); err != nil {
		return err
	}
	return f.Sync()
}
