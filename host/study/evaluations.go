package study

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/schema"
)

// placedEvaluation is an evaluation with its place in the study file.
type placedEvaluation struct {
	evaluation
	// rows is a hash of the files that questions are made of, read once.
	rows  func() (string, error)
	place plaintoml.Error // of what names these files
}

// readEvaluations reads [[study.evaluations]]: tasks, or RULER.
func (s *Study) readEvaluations(tables []*table) {
	measured := map[string]string{}
	for _, t := range tables {
		var e evaluation
		at := t.key("data")
		if t.has("ruler") {
			e, at = t.ruler(), t.key("ruler")
		} else {
			e = t.tasks()
		}
		for _, m := range e.Metrics() {
			if other, ok := measured[m.Name]; ok {
				t.report(t.path, "ask each task once", "%s is measured by %s already", m.Name, other)
				break
			}
			measured[m.Name] = t.path
		}
		s.evaluations = append(s.evaluations, &placedEvaluation{e, sync.OnceValues(e.Rows), *t.ErrorAt(at, "")})
	}
}

// required takes their defaults from keys, so that they have to be given.
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
	var values map[string]any
	t.read(schema.Key{Name: "batch", To: &e.Batch, Is: schema.From(1, schema.Most), Default: ruler.DefaultBatch}, schema.Key{Name: "ruler", To: &values})
	if in := t.below("ruler", values); in != nil {
		in.read(required(e.Keys(), "lengths")...)
		e.Lengths = e.SortedLengths()
		var err error
		if e.Tasks, err = ruler.Select(e.Names); err != nil {
			t.report(in.key("tasks"), "", "%s", safetext.Line(err.Error()))
		}
	}
	return e
}

// tasks reads an evaluation with tasks.
func (t *table) tasks() *taskQuestions {
	e := &taskQuestions{}
	keys := required(e.Keys(), "tasks", "data")
	keys[0].Is = schema.Paths("that name tasks, or files that describe one: " + strings.Join(tasks.Names(), ", "))
	t.read(keys...)
	if e.OneTurn && !e.Chat {
		t.report(t.key("one_turn"), "leave it out, or set chat = true", "belongs to conversations")
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
		if err := e.Source.Possible(task); err != nil {
			t.report(key, "", "%s: %v", name, err)
		}
		e.List = append(e.List, task)
	}
	return e
}

func (s *Study) metrics() []string {
	list := SummaryMetrics()
	for _, e := range s.evaluations {
		for _, m := range e.Metrics() {
			list = append(list, m.Name)
		}
	}
	return list
}

// better is which way a metric is better where the study does not say: of losses, and all that a
// training records, the lower.
func (s *Study) better(metric string) string {
	for _, e := range s.evaluations {
		if slices.Contains(e.Metrics(), measure{Name: metric, Higher: true}) {
			return "higher"
		}
	}
	return "lower"
}

func (s *Study) checkAnswerable(r *reader, study *table, axes []axis) {
	if len(s.evaluations) == 0 {
		return
	}
	for _, c := range s.Cells {
		if !c.Config.Model.Language() {
			r.report(study.key("evaluations"), "want cells that train language models", "a model of kind %q answers no questions (cell %s)", c.Config.Model.Kind, strings.Join(c.Of(axisNames(axes)), " · "))
			return
		}
		for i, e := range s.evaluations {
			long, ok := e.evaluation.(*rulerQuestions)
			if most := c.Config.Model.Context; ok && len(long.Lengths) > 0 && slices.Max(long.Lengths) > most {
				r.report(plaintoml.Indexed(study.key("evaluations"), i)+".ruler.lengths", "want no more, or a larger model.context", "the model sees %d tokens (cell %s)", most, strings.Join(c.Of(axisNames(axes)), " · "))
				return
			}
		}
	}
}
