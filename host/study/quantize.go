package study

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// Unquantized is the method of a cell that evaluates the initial model (model.init) as it is.
const Unquantized = "none"

// Values of [Quantize].Of: the models that can be quantized.
const (
	OfFullPrecision = "full precision" // the cell of the same configuration without quantizers
	OfInit          = "init"           // the model that trainings start from: model.init
)

// Quantize describes how the model of a cell is made by quantization instead of training. The
// quantizer is that of the cell's configuration.
type Quantize struct {
	posttrain.Quantization
	Of string

	given map[string]bool // keys that are present in the file
	at    string          // key path in the file
}

func (t *table) quantize(raw any) *Quantize {
	if raw == nil {
		return nil
	}
	values, isTable := raw.(map[string]any)
	if !isTable {
		values = map[string]any{"method": raw}
	}
	in := &table{reader: t.reader, path: t.key("quantize"), values: values}
	q := &Quantize{at: in.path, given: map[string]bool{}}
	keys := required(q.Keys(), "method")
	for i := range keys {
		q.given[keys[i].Name] = in.has(keys[i].Name)
		if keys[i].Name == "method" {
			keys[i].Is = schema.OneOf(posttrain.RTN, posttrain.GPTQ, Unquantized)
		}
	}
	models := schema.OneOf(OfFullPrecision, OfInit)
	of := schema.Key{Name: "of", To: &q.Of, Is: models, Default: OfFullPrecision}
	in.read(append(keys, of)...)
	for _, p := range q.Check() {
		if in.Good(in.key(p.Key)) {
			in.report(in.key(p.Key), p.Hint, "found %s", p.Found)
		}
	}
	return q
}

// of returns the quantization of a cell. Unless it names other texts, GPTQ of the initial model is
// calibrated with the cell's training set.
func (q *Quantize) of(c *config.Config) *Quantize {
	if files := c.Data.Files(); q.Method == posttrain.GPTQ && q.Of == OfInit && q.Data == "" &&
		len(files) == 1 {
		own := *q
		own.Data, own.given = files[0], maps.Clone(q.given)
		own.given["data"] = true
		return &own
	}
	return q
}

func (q *Quantize) arguments(c Cell) []string {
	context := strconv.Itoa(c.Config.Model.Context)
	source := c.Config.Init // the run directory, or checkpoint, that is quantized
	if q.Of == OfFullPrecision {
		source = c.made.Run
	}
	if q.Method == Unquantized {
		return []string{"import", source, "--out", c.Run, "--context", context, "--lifeline"}
	}
	weights := c.Config.Quantizer.Weights
	args := []string{"quantize", source, "--out", c.Run, "--lifeline", "--quantizer", weights.Name}
	for _, key := range slices.Sorted(maps.Keys(weights.Params)) {
		args = append(args, "--set", key+"="+plaintoml.Setting{Value: weights.Params[key]}.Text())
	}
	if c.Config.Quantizer.Activations != nil {
		args = append(args, "--activations")
	}
	if q.Of == OfInit && !c.initIsRun() {
		args = append(args, "--context", context)
	}
	return append(args, schema.Arguments(q.Keys())...)
}

// initIsRun reports whether training starts from a cage run, whose context is fixed.
func (c Cell) initIsRun() bool {
	if c.start != nil {
		return true
	}
	i, err := config.ReadInitial(c.Config.Init, 0)
	return err == nil && i.Run
}

// text formats the quantization in the style of the cell's other settings. Since the hash of the
// cell depends on it, defaults that are not in the study file are omitted.
func (q *Quantize) text() string {
	member := func(name string, value any) string {
		text, err := json.Marshal(map[string]any{name: value})
		if err != nil {
			panic(err) // strings and numbers only
		}
		return strings.Trim(string(text), "{}")
	}
	members := []string{member("method", q.Method), member("of", q.Of)}
	for _, k := range q.Keys() {
		if v := k.Value(); k.Name != "method" && q.given[k.Name] && v != false {
			members = append(members, member(k.Name, v))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (c Cell) hash() string {
	hash := c.Config.Fingerprint()
	if c.Quantize != nil {
		hash = fmt.Sprintf("%x", sha256.Sum256([]byte(hash+c.Quantize.text())))
	}
	return hash
}

// findSources finds, for each quantized cell, the cell that trains its model in full precision.
func (r *reader) findSources(cells []Cell, plans []plan, axes []axis) {
	trained := map[string]int{}
	for i, c := range cells {
		q := c.Config.Quantizer
		if c.Quantize != nil || q.Weights != nil || q.Activations != nil || len(q.Overrides) > 0 {
			continue
		}
		key := inFullPrecision(c.Config)
		if _, ok := trained[key]; !ok {
			trained[key] = i
		}
	}
	var found problems
	for i := range cells {
		c := &cells[i]
		if c.Quantize == nil {
			continue
		}
		from, ok := trained[inFullPrecision(c.Config)]
		if problem, hint := c.quantizable(ok); problem != "" {
			e := r.ErrorAt(c.Quantize.at, "%s", problem).WithHint(hint)
			found.add(e, plans[i].name(axes))
		}
		if c.Quantize.Of == OfFullPrecision {
			c.made = &cells[from]
		}
	}
	r.Errs = append(r.Errs, found.list(len(cells))...)
}

func inFullPrecision(cfg *config.Config) string {
	full, _ := cfg.Changed(func(c *config.Config) error {
		c.Quantizer, c.Method = config.Quantizer{}, cage.Settings{CAGE: cage.CAGE{Form: cage.Off}}
		return nil
	})
	return full.Fingerprint()
}

// quantizable returns the reason why the cell cannot be quantized, with a hint; "" if it can be.
func (c Cell) quantizable(hasSource bool) (problem, hint string) {
	q, method, ofInit := c.Config.Quantizer, c.Quantize.Method, c.Quantize.Of == OfInit
	w, a := q.Weights, q.Activations
	switch {
	case !c.Config.Model.Language():
		return fmt.Sprintf("a model of kind %q cannot be quantized after training", c.Config.Model.Kind),
			"want a language model"
	case method == Unquantized && (!ofInit || c.initIsRun()):
		return `method = "none" is only for a Hugging Face checkpoint in model.init`,
			`want of = "init" and such a checkpoint; to train in full precision, leave quantize out`
	case method == Unquantized && w == nil && a == nil && len(q.Overrides) == 0 && c.Config.Init != "":
		return "", ""
	case method == Unquantized && (w != nil || a != nil || len(q.Overrides) > 0):
		return `method = "none" does not allow a quantizer`, `set quantizer = {plugin = "none"}`
	case w == nil:
		return "the cell has no quantizer", "set quantizer.weights, or quantizer for activations, too"
	case len(q.Overrides) > 0:
		return "the cell has quantizer.overrides", "want one quantizer for all weights"
	case a != nil && (a.Name != w.Name || !reflect.DeepEqual(a.Params, w.Params)):
		return "weights and activations have different quantizers",
			"want the same for both, or none for activations"
	case ofInit && c.start != nil && c.start.Quantize != nil:
		return "the cell in init is quantized already", "want a cell that is trained in init"
	case ofInit && c.Config.Init == "":
		return "model.init is missing", `set it, or leave of = "init" out`
	case !ofInit && !hasSource:
		return "no cell trains the same configuration in full precision",
			`add one: the same settings with quantizer = {plugin = "none"}`
	case method == posttrain.GPTQ && c.Quantize.Data == "" && ofInit:
		return "the training set to calibrate with is not a single file",
			"name a token file or a chat file with data"
	}
	return "", ""
}

func (s *Study) setRuns() error {
	for i := range s.Cells {
		c := &s.Cells[i]
		var err error
		c.Config, err = c.Config.Changed(func(cfg *config.Config) error {
			cfg.Train.Out = c.Run
			if c.start != nil {
				cfg.Init = c.start.Run
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Study) run(c Cell) rundir.Dir {
	if c.Run == c.Dir {
		return s.dir(c)
	}
	return rundir.Dir{Path: s.dir(c).Join(rundir.StudyModel)}
}

func (r *runner) quantize(ctx context.Context, c Cell) (State, *Failure, error) {
	run := r.study.run(c)
	for { // a process whose parent has died may still be at work
		busy, err := atomicfile.BusyDir(run.Path)
		if ctx.Err() != nil || err != nil {
			return Interrupted, nil, err
		}
		if !busy {
			break
		}
		pause(ctx, lockRetry)
	}
	_, done, err := metrics.ReadNumbers(run.Summary())
	if err == nil && done {
		return Done, nil, nil
	}
	damaged, err := run.Exists()
	if damaged {
		err = r.study.moveToStale(run.Path, c.ID+"-"+rundir.StudyModel)
	}
	if err != nil {
		return Interrupted, nil, err
	}
	return r.tool(ctx, c, logFile, nil, c.Quantize.arguments(c))
}

// awaitSource waits until the model from which c is made has been trained (the state is then
// [Done]), until its training is stopped ([Interrupted]), or until it is known that it will not be
// trained ([Failed]).
func (r *runner) awaitSource(ctx context.Context, c Cell) (State, *Failure) {
	for ctx.Err() == nil {
		if state, failure := r.source(c); state != Running {
			return state, failure
		}
		pause(ctx, interval)
	}
	return Interrupted, nil
}

// source returns a state as awaitSource does, and [Running] while the model is still to be trained.
func (r *runner) source(c Cell) (State, *Failure) {
	source := c.made
	if source == nil {
		return Done, nil
	}
	r.mu.Lock()
	state, stopped := r.states[source.ID], r.stopped[source.ID]
	r.mu.Unlock()
	is := func(o Cell) bool { return o.ID == source.ID }
	toBeTrained := state == Running || slices.ContainsFunc(r.plan.Run, is)
	summary, trained, err := metrics.ReadNumbers(r.study.run(*source).Summary())
	switch {
	case trained && err == nil && !(toBeTrained && state == Stale):
		if NotFinite(summary) {
			why := "its source model diverged: " + r.study.Label(*source)
			return Failed, &Failure{Error: why, File: logFile}
		}
		return Done, nil
	case stopped:
		return Interrupted, nil
	case !toBeTrained || state == Failed:
		why := "its source model is not trained: " + r.study.Label(*source)
		return Failed, &Failure{Error: why, File: logFile}
	}
	return Running, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// FindRemade sets the state of models that were made from a stale model to [Stale].
func (s *Study) FindRemade(results []Result) {
	s.markRemade(results, func(_, _ Cell) bool { return false })
}

// markRemade sets the state of a model to [Stale] if its source is stale, or has been replaced
// according to remade.
func (s *Study) markRemade(results []Result, remade func(c, source Cell) bool) {
	for again := true; again; { // until models made from stale ones are stale, too
		again = false
		states := statesOf(results)
		for i, r := range results {
			c := r.Cell
			begun := r.Trained() || r.Diverged ||
				c.Quantize == nil && (r.State == Interrupted || r.State == Failed)
			if c.made != nil && begun && (states[c.made.ID] == Stale || remade(c, *c.made)) {
				why := "its source model has changed: " + s.Label(*c.made)
				results[i] = Result{Cell: c, State: Stale, Err: why}
				again = true
			}
		}
	}
}
