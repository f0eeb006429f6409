package ruler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// DefaultBatch is the default number of prompts that are answered at once.
const DefaultBatch = 8

// Model answers prompts with at most newTokens tokens each.
type Model func(ctx context.Context, prompts []string, newTokens int) ([]string, error)

// Plan describes the prompts that a model is asked.
type Plan struct {
	Tasks   []Task
	Lengths []int
	Samples int
	Batch   int // prompts answered at once
	// Settings holds everything that affects the prompts except the inputs, such as the tokenizer.
	Settings map[string]string
	Model    ModelName
	// Progress is called with the numbers of finished answers and of all, for a task and length.
	Progress func(t Task, length, done, of int)
}

// Answer is a model's answer to a sample, with the fields that RULER's scripts store.
type Answer struct {
	Index int `json:"index"`
	// Pred is the generated answer, without the answer prefix.
	Pred string `json:"pred"`
	// Input is the whole prompt: the sample's input and answer prefix.
	Input   string   `json:"input"`
	Outputs []string `json:"outputs"`
	// Others and Truncation have no meaning here, but RULER's evaluation script expects them.
	Others     struct{} `json:"others"`
	Truncation int      `json:"truncation"`
	Length     int      `json:"length"`
}

// Manifest is the provenance of the answers in a directory. More answers can be added to it only
// with the same settings.
type Manifest struct {
	Format int    `json:"format"`
	Seed   uint32 `json:"seed"`
	// Samples is the number of samples per task and length.
	Samples int `json:"samples"`
	// Settings holds everything that affects the prompts: tokenizer, template, inputs.
	Settings map[string]string `json:"settings"`
	Model    *ModelName        `json:"model,omitempty"`
	// Substitutions lists the differences from RULER's own inputs.
	Substitutions []string `json:"substitutions,omitempty"`
	// LeftOut maps each omitted task to the input that it lacks.
	LeftOut map[string]string `json:"left_out,omitempty"`
}

const manifestFormat = 1

// ModelName identifies a model.
type ModelName struct {
	// Name is the human-readable name.
	Name string `json:"name"`
	// Identity, if not empty, identifies the model wherever it is stored.
	Identity string `json:"identity,omitempty"`
	// Batch is the number of prompts answered at once, which slightly affects the answers.
	Batch int `json:"batch,omitempty"`
}

func (n ModelName) String() string {
	if n.Identity == "" {
		return n.Name
	}
	return n.Name + " (" + n.Identity + ")"
}

// Directory stores answers in the layout of RULER's scripts: answers at length L are in
// L/pred/TASK.jsonl. The manifest is ruler.json.
type Directory struct{ path vfs.Path }

// At returns the directory at path, which need not exist yet.
func At(path vfs.Path) Directory { return Directory{path} }

func (d Directory) manifest() vfs.Path { return d.path.Join("ruler.json") }

func (d Directory) answers(length int, t Task) vfs.Path {
	return d.path.Join(strconv.Itoa(length), "pred", t.Name+".jsonl")
}

func (d Directory) lengths() ([]int, error) {
	entries, err := d.path.ReadDir()
	var list []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err == nil && n > 0 && strconv.Itoa(n) == e.Name() && e.IsDir() {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, err
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// ParseManifest parses a manifest.
func ParseManifest(content []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := plainjson.UnmarshalStrict(content, m); err != nil {
		return nil, err
	}
	if m.Format != manifestFormat {
		return nil, fmt.Errorf("got format %d, this version reads format %d",
			m.Format, manifestFormat)
	}
	return m, nil
}

// Manifest reads the directory's manifest. It returns nil if there is none.
func (d Directory) Manifest() (*Manifest, error) {
	content, err := d.manifest().ReadFile()
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.manifest(), err)
	}
	return m, nil
}

// Ask makes the prompts of all tasks in p whose inputs are given, and asks the model those that
// have no stored answer yet. Each batch of answers is written to disk before the next is asked.
func (d Directory) Ask(ctx context.Context, g *Generator, p Plan, model Model) (err error) {
	m := &Manifest{
		Format: manifestFormat, Seed: g.Seed, Samples: p.Samples, Model: &p.Model,
		Settings: map[string]string{}, LeftOut: map[string]string{},
	}
	maps.Copy(m.Settings, p.Settings)
	maps.Copy(m.Settings, g.sources)
	var tasks []Task
	for _, t := range p.Tasks {
		if input := g.Missing(t); input != "" {
			m.LeftOut[t.Name] = input
		} else {
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 0 {
		return fmt.Errorf("each of these tasks needs an input that was not given: %s", leftOut(m.LeftOut))
	}
	m.Substitutions = g.Substitutions(tasks)
	if err := d.path.MkdirAll(); err != nil {
		return err
	}
	lock, err := d.path.Join(vfs.LockFile).Lock()
	if errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("%s: another process is working on it", d.path)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := d.write(m); err != nil {
		return err
	}
	for _, length := range p.Lengths {
		for _, t := range tasks {
			if err := d.ask(ctx, g, p, t, length, model); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes the manifest, after checking that it is compatible with that of earlier answers.
func (d Directory) write(m *Manifest) error {
	old, err := d.Manifest()
	switch {
	case err != nil:
		return err
	case old != nil:
		if err := m.merge(old); err != nil {
			return fmt.Errorf("%s: %w: choose another directory", d.path, err)
		}
	default:
		// The manifest is written first. A directory with answers but no manifest, such as one written by
		// RULER's scripts, is refused: answers would be appended to its files, and damaged lines cut off.
		lengths, err := d.lengths()
		if err != nil {
			return err
		}
		for _, length := range lengths {
			path := d.path.Join(strconv.Itoa(length), "pred")
			if exists, err := path.Exists(); exists || err != nil {
				return errors.Join(err, fmt.Errorf("%s exists without %s, so cage did not "+
					"write it: move it away, or choose another directory", path, d.manifest().Base()))
			}
		}
	}
	ours := func(name string) bool { return name == d.manifest().Base() }
	if err := atomicfile.RemoveAbandoned(d.path, ours); err != nil {
		return err
	}
	return atomicfile.WriteJSON(d.manifest(), m)
}

// merge checks that m is compatible with the old manifest, and merges old into m. Inputs may be
// added, and so may samples, which follow the existing ones.
func (m *Manifest) merge(old *Manifest) error {
	if m.Seed != old.Seed {
		return fmt.Errorf("the prompts were made with the seed %d, not %d", old.Seed, m.Seed)
	}
	if m.Samples < old.Samples {
		return fmt.Errorf("it has %d samples of each task, but %d were requested",
			old.Samples, m.Samples)
	}
	for _, key := range slices.Sorted(maps.Keys(old.Settings)) {
		now, ok := m.Settings[key]
		if ok && now != old.Settings[key] {
			return fmt.Errorf("the prompts were made with %s %q, not %q", key, old.Settings[key], now)
		}
		m.Settings[key] = old.Settings[key]
	}
	for _, s := range old.Substitutions {
		if !slices.Contains(m.Substitutions, s) {
			m.Substitutions = append(m.Substitutions, s)
		}
	}
	if old.Model == nil {
		return nil
	}
	same := m.Model.Name == old.Model.Name
	if m.Model.Identity != "" && old.Model.Identity != "" {
		same = m.Model.Identity == old.Model.Identity
	}
	switch {
	case !same:
		return fmt.Errorf("the answers are from %s, not from %s", old.Model, m.Model)
	case old.Model.Batch > 0 && old.Model.Batch != m.Model.Batch:
		return fmt.Errorf("the prompts were answered %d at once, not %d",
			old.Model.Batch, m.Model.Batch)
	}
	return nil
}

func (d Directory) ask(
	ctx context.Context, g *Generator, p Plan, t Task, length int, model Model,
) (err error) {
	path := d.answers(length, t)
	samples, err := g.Samples(ctx, t, length, p.Samples)
	if err != nil {
		return err
	}
	done, size, err := answered(path, samples, p.Batch)
	if err != nil {
		return err
	}
	if err := path.Dir().MkdirAll(); err != nil {
		return err
	}
	log, err := jsonlines.Continue[Answer](path, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	for batch := range slices.Chunk(samples[done:], p.Batch) {
		prompts := lists.Map(batch, Sample.Prompt)
		texts, err := model(ctx, prompts, t.NewTokens)
		if err != nil {
			return err
		}
		if len(texts) != len(batch) {
			return fmt.Errorf("the model gave %d answers to %d prompts", len(texts), len(batch))
		}
		answers := make([]Answer, len(batch))
		for i, s := range batch {
			answers[i] = Answer{
				Index: s.Index, Pred: texts[i], Input: prompts[i],
				Outputs: s.Outputs, Truncation: -1, Length: s.Length,
			}
		}
		if err := errors.Join(log.Append(answers...), log.Sync()); err != nil {
			return err
		}
		done += len(batch)
		p.Progress(t, length, done, p.Samples)
	}
	return nil
}

// answered returns the number of samples that have an answer, up to the last complete batch, and
// the size of the file up to there. Later ones are asked again: answers depend slightly on the rest
// of their batch, and the file must not depend on when work was interrupted. Reading stops at a
// line that is not an answer, as a power loss may leave.
func answered(path vfs.Path, samples []Sample, batch int) (done int, size int64, err error) {
	n := 0
	for a, err := range jsonlines.Read[Answer](path) {
		if _, damaged := errors.AsType[*jsonlines.Error](err); damaged || isMissing(err) {
			break
		}
		if err != nil {
			return 0, 0, err
		}
		if n == len(samples) || samples[n].Prompt() != a.Value.Input || a.Value.Outputs == nil {
			return 0, 0, fmt.Errorf("%s: line %d answers another prompt: move the file away", path, a.Line)
		}
		if n++; n-done == batch || n == len(samples) {
			size, done = a.End, n
		}
	}
	return done, size, nil
}
