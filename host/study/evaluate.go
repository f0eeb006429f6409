package study

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/internal/vfs"
)

// evaluationsDir is the subdirectory of a cell's directory with a directory for each evaluation,
// which holds the model's answers and the state of the evaluation (evaluationFile).
const (
	evaluationsDir = "evaluations"
	evaluationFile = "evaluation.json"
)

// savedEvaluation records the questions (as a hash) and the results of an evaluation.
type savedEvaluation struct {
	Rows    string                    `json:"rows"`              // hash of the files of the questions
	Metrics map[string]metrics.Number `json:"metrics,omitempty"` // nil until it is done
	SHA256  string                    `json:"sha256,omitempty"`  // of the others, once it is done
}

func (a savedEvaluation) sum() string {
	a.SHA256 = ""
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// evaluationsOf returns the evaluations of a cell. If the cell's model is quantized after training,
// they include the validation loss, which is otherwise measured by training.
func (s *Study) evaluationsOf(c Cell) []*positionedEvaluation {
	if c.Quantize == nil || c.Quantize.Of != OfFullPrecision {
		return s.evaluations
	}
	e := &validationLoss{Batches: c.Config.Train.FinalEvalBatches}
	return append([]*positionedEvaluation{{evaluation: e, rows: e.Rows}}, s.evaluations...)
}

func (s *Study) answers(c Cell, e *positionedEvaluation) vfs.Path {
	return s.dir(c).Join(evaluationsDir, e.ID())
}

// readEvaluation reads the saved state of an evaluation; begun is false if there is none.
func readEvaluation(dir vfs.Path) (a savedEvaluation, begun bool, err error) {
	err = readOurs(dir.Join(evaluationFile), &a)
	if errors.Is(err, fs.ErrNotExist) {
		return a, false, nil
	}
	if err == nil && a.SHA256 != "" && a.SHA256 != a.sum() {
		err = &damagedFile{dir.Join(evaluationFile), errNotAsDone}
	}
	return a, true, err
}

// findOutdated marks results as unevaluated if an evaluation is missing or its questions have
// changed.
func (s *Study) findOutdated(results []Result) {
	for i := range results {
		r := &results[i]
		if r.State != Done && r.State != Unevaluated || r.Diverged {
			continue
		}
		if recorded, err := s.Evaluated(r.Cell); err == nil {
			s.FindUnevaluated(r, recorded)
		}
	}
}

func (r *runner) evaluate(ctx context.Context, c Cell) (State, *Failure, error) {
	for _, e := range r.study.evaluationsOf(c) {
		if r.study.readCellResult(c, false).Diverged { // also by the loss of the first evaluation
			break
		}
		dir := r.study.answers(c, e)
		done, err := r.study.beginEvaluation(ctx, c, e)
		if ctx.Err() != nil {
			return Unevaluated, nil, nil
		}
		if err != nil {
			return Unevaluated, nil, err
		}
		if done {
			continue
		}
		output := dir.Join(outputFile)
		state, failure, err := r.tool(ctx, c, evaluationLog, &output, e.Arguments(c, dir.Name))
		switch state {
		case Interrupted:
			return Unevaluated, nil, err
		case Failed:
			return Failed, failure, nil
		}
		a, _, err := readEvaluation(dir)
		if err == nil {
			var found map[string]float64
			found, err = e.Read(dir)
			a.Metrics = map[string]metrics.Number{}
			for name, x := range found {
				a.Metrics[name] = metrics.Number(x)
			}
		}
		if err == nil {
			a.SHA256 = a.sum()
			err = atomicfile.WriteJSON(dir.Join(evaluationFile), a)
		}
		if err != nil {
			return Failed, &Failure{Error: err.Error(), Exit: "exit status 0", File: evaluationLog}, nil
		}
	}
	return Done, nil, nil
}

// beginEvaluation prepares the directory of an evaluation, and reports whether the evaluation is
// already complete. Answers to different questions are moved to the directory of stale runs.
func (s *Study) beginEvaluation(
	ctx context.Context, c Cell, e *positionedEvaluation,
) (done bool, err error) {
	dir := s.answers(c, e)
	now, err := e.rows()
	if err != nil {
		return false, err
	}
	if err := dir.MkdirAll(); err != nil {
		return false, err
	}
	if err := awaitFree(ctx, dir.Join(vfs.LockFile)); err != nil {
		return false, err
	}
	if err := removeAbandoned(dir, evaluationFile); err != nil {
		return false, err
	}
	a, begun, err := readEvaluation(dir)
	switch damage := (*damagedFile)(nil); {
	case errors.As(err, &damage):
		err = damage.putAside()
	case err != nil:
	case begun && a.Rows == now:
		return a.Metrics != nil, nil
	default:
		answered := begun // without evaluationFile, the answers are to unknown questions
		if !begun {
			answered, err = dir.Join(outputFile).Exists()
		}
		if answered && err == nil {
			err = s.moveToStale(dir, c.ID+"-"+e.ID())
		}
		err = cmp.Or(err, dir.MkdirAll())
	}
	if err != nil {
		return false, err
	}
	return false, atomicfile.WriteJSON(dir.Join(evaluationFile), savedEvaluation{Rows: now})
}

// Items returns the values of a metric for each item of the evaluation that measured it: a question
// or a sequence of tokens. There are none for results that were not read from a run, and for
// metrics that are not means over items.
func (s *Study) Items(r Result, metric string) ([]float64, error) {
	for _, e := range s.evaluationsOf(r.Cell) {
		has := func(m measure) bool { return m.Name == metric }
		if _, known := r.Summary[metric]; known && r.read && slices.ContainsFunc(e.Metrics(), has) {
			return e.Items(s.answers(r.Cell, e), metric)
		}
	}
	return nil, nil
}

// Evaluated returns the evaluations that have begun on a cell's model: for each ID, the hash of the
// files with the questions.
func (s *Study) Evaluated(c Cell) (map[string]string, error) {
	list := map[string]string{}
	for _, e := range s.evaluationsOf(c) {
		a, begun, err := readEvaluation(s.answers(c, e))
		if err != nil {
			return nil, err
		}
		if begun {
			list[e.ID()] = a.Rows
		}
	}
	return list, nil
}

// FindUnevaluated compares the recorded evaluations of a result, as returned by [Study.Evaluated],
// with the study's current ones. If they differ, it sets the result's state to [Unevaluated], and
// removes the metrics of the evaluations that differ from its summary. Questions whose files cannot
// be read at present are assumed to be unchanged.
func (s *Study) FindUnevaluated(r *Result, recorded map[string]string) {
	for _, e := range s.evaluationsOf(r.Cell) {
		if was, ok := recorded[e.ID()]; !ok {
			r.unevaluated(e, "the evaluation "+e.ID()+" is missing")
		} else if now, err := e.rows(); err == nil && now != was {
			r.unevaluated(e, "the questions of "+e.ID()+" have changed")
		}
	}
}

// unevaluated sets the result's state to [Unevaluated] and removes the metrics of an evaluation.
func (r *Result) unevaluated(e *positionedEvaluation, why string) {
	r.State, r.Err, r.Summary = Unevaluated, why, maps.Clone(r.Summary)
	for _, m := range e.Metrics() {
		delete(r.Summary, m.Name)
	}
}

type positionedEvaluation struct {
	evaluation
	// rows returns a hash of the files with the questions; it reads them only once.
	rows     func() (string, error)
	position plaintoml.Error // of the key that names these files
}

// readEvaluations reads [[study.evaluations]]: each one is tasks, RULER, or a comparison with a
// reference model.
func (s *Study) readEvaluations(tables []*table) {
	measured := map[string]string{}
	for _, t := range tables {
		var e evaluation
		at := t.key("data")
		switch {
		case t.has("ruler"):
			e, at = t.ruler(), t.key("ruler")
		case t.has("reference"):
			r := &reference{}
			t.read(r.keys()...)
			if r.Model == OfInit {
				if r.Model = s.init; s.init == "" {
					t.report(t.key("reference"), "name a model", "model.init is missing in base")
				}
			}
			e, at = r, t.key("reference")
		default:
			e = t.tasks()
		}
		for _, m := range e.Metrics() {
			if other, ok := measured[m.Name]; ok {
				t.report(t.path, "ask each task once", "%s already measures %s", other, m.Name)
				break
			}
			measured[m.Name] = t.path
		}
		position := *t.ErrorAt(at, "")
		s.evaluations = append(s.evaluations, &positionedEvaluation{e, sync.OnceValues(e.Rows), position})
	}
}

func required(keys []schema.Key, names ...string) []schema.Key {
	for i := range keys {
		if slices.Contains(names, keys[i].Name) {
			keys[i].Default, keys[i].Optional, keys[i].Doc = nil, "", ""
		}
	}
	return keys
}

func (t *table) ruler() *rulerQuestions {
	e := &rulerQuestions{}
	sizes := schema.From(1, schema.Most)
	t.read(schema.Key{Name: "batch", To: &e.Batch, Is: sizes, Default: ruler.DefaultBatch},
		schema.Key{Name: "ruler", To: new(map[string]any)})
	if in := t.subtable("ruler"); in != nil {
		in.read(required(e.Keys(), "lengths")...)
		e.Lengths = e.SortedLengths()
		var err error
		if e.Tasks, err = ruler.Select(e.Names); err != nil {
			t.report(in.key("tasks"), "", "%s", safetext.Line(err.Error()))
		}
	}
	return e
}

func (t *table) tasks() *taskQuestions {
	e := &taskQuestions{}
	keys := required(e.Keys(), "tasks", "data")
	names := strings.Join(tasks.Names(), ", ")
	keys[0].Is = schema.Paths("that name tasks, or files that describe one: " + names)
	t.read(keys...)
	if e.OneTurn && !e.Chat {
		t.report(t.key("one_turn"), "leave it out, or set chat = true", "applies only to conversations")
	}
	for i, name := range e.Names {
		key := t.key("tasks")
		if _, single := t.values["tasks"].(string); !single {
			key = plaintoml.Indexed(key, i)
		}
		if strings.HasSuffix(name, ".toml") && !filepath.IsAbs(name) {
			e.Names[i] = filepath.Join(t.dir, name)
		}
		task, err := tasks.Open(e.Names[i])
		if err != nil {
			t.report(key, "", "%s", safetext.Line(err.Error()))
			continue
		}
		if err := e.Source.CheckExamples(task); err != nil {
			t.report(key, "", "%s: %v", name, err)
		}
		e.List = append(e.List, task)
	}
	return e
}

func (s *Study) metrics() []string {
	list := SummaryMetrics()
	for _, e := range s.evaluations {
		list = append(list, lists.Map(e.Metrics(), func(m measure) string { return m.Name })...)
	}
	return list
}

// better returns the direction in which a metric improves if the study file does not specify it:
// "lower" for losses and everything that training records.
func (s *Study) better(metric string) string {
	for _, e := range s.evaluations {
		if slices.Contains(e.Metrics(), measure{Name: metric, Higher: true}) {
			return "higher"
		}
	}
	return "lower"
}

// checkAnswerable reports evaluations that a cell's model cannot answer.
func (s *Study) checkAnswerable(r *reader, study *table, axes []axis) {
	key := study.key("evaluations")
	for _, c := range s.Cells {
		cell, model := strings.Join(c.Of(axisNames(axes)), " · "), c.Config.Model
		for i, e := range s.evaluations {
			long, ok := e.evaluation.(*rulerQuestions)
			switch {
			case !model.Language():
				r.report(key, "want cells that train language models",
					"a model of kind %q cannot answer questions (cell %s)", model.Kind, cell)
				return
			case ok && len(long.Lengths) > 0 && slices.Max(long.Lengths) > model.Context:
				r.report(plaintoml.Indexed(key, i)+".ruler.lengths",
					"want shorter lengths, or a larger model.context",
					"the model has a context of %d tokens (cell %s)", model.Context, cell)
				return
			}
		}
	}
}
