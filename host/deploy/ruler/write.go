package ruler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// Plan says which prompts are wanted.
type Plan struct {
	Tasks   []Task
	Lengths []int
	Samples int
	// Settings holds what the prompts depend on in addition to the inputs, such as the
	// tokenizer.
	Settings map[string]string
	// Model names the model that is to answer them; nil: none.
	Model *ModelName
	// Progress, if not nil, is called with what has been done for a task at a length.
	Progress func(doing string, t Task, length, done, of int)
}

func (p Plan) progress(doing string, t Task, length, done int) {
	if p.Progress != nil {
		p.Progress(doing, t, length, done, p.Samples)
	}
}

// Write makes the prompts of a plan for all tasks that lack no input, except prompts that
// already exist. It returns the plan with only these tasks.
func (g *Generator) Write(ctx context.Context, d Directory, p Plan) (Plan, error) {
	m := &Manifest{Format: manifestFormat, Seed: g.Seed, Samples: p.Samples, Settings: map[string]string{}, Model: p.Model, LeftOut: map[string]string{}}
	maps.Copy(m.Settings, p.Settings)
	maps.Copy(m.Settings, g.sources)
	var tasks []Task
	for _, t := range p.Tasks {
		if lack := g.Missing(t); lack != "" {
			m.LeftOut[t.Name] = lack
		} else {
			tasks = append(tasks, t)
		}
	}
	if p.Tasks = tasks; len(tasks) == 0 {
		return p, fmt.Errorf("all of these tasks lack an input: %s", leftOut(m.LeftOut))
	}
	m.Substitutions = g.Substitutions(tasks)
	lock, err := d.lock()
	if err != nil {
		return p, err
	}
	err = d.keep(m, tasks)
	for _, length := range p.Lengths {
		for _, t := range tasks {
			if err == nil {
				err = g.write(ctx, d.prompts(length, t), p, t, length)
			}
		}
	}
	return p, errors.Join(err, lock.Unlock())
}

// write makes a file of prompts if there is none with as many.
func (g *Generator) write(ctx context.Context, path vfs.Path, p Plan, t Task, length int) error {
	there := 0
	for _, err := range jsonlines.Read[Sample](path) {
		if missing(err) {
			break
		}
		if err != nil {
			return err
		}
		there++
	}
	if there >= p.Samples {
		return nil
	}
	if err := path.Dir().MkdirAll(); err != nil {
		return err
	}
	if err := removeAbandoned(path); err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		done := 0
		for s, err := range g.Samples(ctx, t, length, p.Samples) {
			if err != nil {
				return err
			}
			if err := jsonlines.Encode(w, s); err != nil {
				return err
			}
			done++
			p.progress("prompts", t, length, done)
		}
		return nil
	})
}

// removeAbandoned removes what is left of a file whose writing was interrupted.
func removeAbandoned(path vfs.Path) error {
	return atomicfile.RemoveAbandoned(path.Dir(), func(name string) bool { return name == path.Base() })
}

// Directory stores prompts and answers as RULER's scripts do: those of length L are in
// L/data/TASK/validation.jsonl and L/pred/TASK.jsonl. ruler.json says what they were made
// with.
type Directory struct{ path vfs.Path }

// At returns the directory at path, which need not exist yet.
func At(path vfs.Path) Directory { return Directory{path} }

func (d Directory) manifest() vfs.Path { return d.path.Join("ruler.json") }

func (d Directory) prompts(length int, t Task) vfs.Path {
	return d.path.Join(strconv.Itoa(length), "data", t.Name, "validation.jsonl")
}

func (d Directory) answers(length int, t Task) vfs.Path {
	return d.path.Join(strconv.Itoa(length), "pred", t.Name+".jsonl")
}

// lock keeps other processes from writing to the directory.
func (d Directory) lock() (vfs.Lock, error) {
	if err := d.path.MkdirAll(); err != nil {
		return nil, err
	}
	lock, err := d.path.Join(vfs.LockFile).Lock()
	if errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("%s: another process is working on it", d.path)
	}
	return lock, err
}

// lengths are those for which there are prompts or answers.
func (d Directory) lengths() ([]int, error) {
	entries, err := d.path.ReadDir()
	if err != nil {
		return nil, err
	}
	var list []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 && strconv.Itoa(n) == e.Name() && e.IsDir() {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// hasPrompts tells whether there are prompts of a task for any length.
func (d Directory) hasPrompts(task string) (bool, error) {
	lengths, err := d.lengths()
	if err != nil {
		return false, err
	}
	for _, length := range lengths {
		if there, err := d.prompts(length, Task{Name: task}).Exists(); there || err != nil {
			return there, err
		}
	}
	return false, nil
}

// missing tells whether an error says that a file is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
