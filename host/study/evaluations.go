package study

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/study/evaluation"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/safetext"
)

// asked is an evaluation of the study file.
type asked struct {
	evaluation.Evaluation
	// rows is a hash of the files that questions are made of, read once.
	rows  func() (string, error)
	place plaintoml.Error // of what names these files
}

// problem is what is wrong with the files.
func (a *asked) problem(err error) *plaintoml.Error {
	e := a.place
	e.Msg = err.Error()
	return &e
}

// readEvaluations reads [[study.evaluations]].
func (s *Study) readEvaluations(study *table) {
	measured := map[string]string{}
	for _, t := range study.tables("evaluations") {
		e := t.evaluation()
		at := t.key("data")
		if t.has("ruler") {
			at = t.key("ruler")
		}
		t.finish()
		for _, m := range e.Metrics() {
			if other, ok := measured[m.Name]; ok {
				t.report(t.path, "ask each task once", "%s is measured by %s already", m.Name, other)
				break
			}
			measured[m.Name] = t.path
		}
		s.evaluations = append(s.evaluations, &asked{e, sync.OnceValues(e.Rows), *t.doc.ErrorAt(at, "")})
	}
}

const (
	usualBatch = 8       // as of `cage eval` and, for prompts of RULER, as many
	mostAsked  = 1 << 20 // of anything that is counted
)

// evaluation reads one of [[study.evaluations]]: tasks, or RULER.
func (t *table) evaluation() evaluation.Evaluation {
	batch := usualBatch
	if t.has("batch") {
		batch = max(1, t.count("batch", mostAsked))
	}
	if r := t.table("ruler"); r != nil {
		return r.ruler(batch)
	}
	return t.asksTasks(batch)
}

// ruler reads a table whose keys are the flags of `cage ruler`.
func (t *table) ruler(batch int) *evaluation.Ruler {
	defer t.finish()
	e := &evaluation.Ruler{Samples: t.count("samples", mostAsked), Template: t.text("template"), Batch: batch,
		Files: ruler.Files{Words: t.text("words"), Essay: t.text("essay"), Squad: t.text("squad"), Hotpot: t.text("hotpot")}}
	if !t.has("samples") {
		e.Samples = 500 // as RULER
	}
	list, _ := t.get("lengths").([]any)
	for _, raw := range list {
		if n, ok := raw.(int64); ok && n > 0 && n < mostAsked {
			e.Lengths = append(e.Lengths, int(n))
		}
	}
	if len(list) == 0 || len(e.Lengths) < len(list) {
		t.wrong("lengths", t.get("lengths"), "numbers of tokens, such as [4096, 8192]")
	}
	e.Lengths = slices.Compact(slices.Sorted(slices.Values(e.Lengths)))
	var err error
	if e.Tasks, err = ruler.Select(t.texts("tasks")); err != nil {
		t.report(t.key("tasks"), "", "%s", safetext.Line(err.Error()))
	}
	return e
}

// asksTasks reads a table whose keys are the flags of `cage eval --tasks`.
func (t *table) asksTasks(batch int) *evaluation.Tasks {
	e := &evaluation.Tasks{Names: t.texts("tasks"), Batch: batch, MaxTokens: t.count("max_tokens", mostAsked), Chat: t.flag("chat"), OneTurn: t.flag("one_turn"),
		Source: tasks.Source{Data: t.text("data"), Examples: t.text("examples"), Shots: -1, Limit: t.count("limit", 1<<40)}}
	if t.has("fewshot") {
		e.Source.Shots = t.count("fewshot", mostAsked)
	}
	if !t.has("tasks") {
		t.report(t.key("tasks"), "want names of tasks, or files that describe one: "+strings.Join(tasks.Names(), ", "), "missing")
	}
	if !t.has("data") {
		t.report(t.key("data"), "want the folder with the rows of the tasks", "missing")
	}
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

// metrics are the names of all numbers that a cell has in the end.
func (s *Study) metrics() []string {
	list := SummaryMetrics()
	for _, e := range s.evaluations {
		for _, m := range e.Metrics() {
			list = append(list, m.Name)
		}
	}
	return list
}

// better is which way a metric is better where the study does not say: of losses, and all that a training records, the
// lower.
func (s *Study) better(metric string) string {
	for _, e := range s.evaluations {
		if slices.Contains(e.Metrics(), evaluation.Metric{Name: metric, Higher: true}) {
			return "higher"
		}
	}
	return "lower"
}

// checkAsked reports cells whose models cannot be asked anything.
func (s *Study) checkAsked(r *reader, study *table, axes []axis) {
	if len(s.evaluations) == 0 {
		return
	}
	for _, c := range s.Cells {
		if !c.Config.Model.Language() {
			r.report(study.key("evaluations"), "want cells that train language models", "a model of kind %q answers no questions (cell %s)", c.Config.Model.Kind, strings.Join(c.Of(axisNames(axes)), " · "))
			return
		}
		for i, e := range s.evaluations {
			long, ok := e.Evaluation.(*evaluation.Ruler)
			if most := c.Config.Model.Context; ok && len(long.Lengths) > 0 && slices.Max(long.Lengths) > most {
				r.report(plaintoml.Indexed(study.key("evaluations"), i)+".ruler.lengths", "want no more, or a larger model.context", "the model sees %d tokens (cell %s)", most, strings.Join(c.Of(axisNames(axes)), " · "))
				return
			}
		}
	}
}
