package study

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
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

// Unquantized is the method of a cell that evaluates the initial model (model.init) unchanged.
const Unquantized = "none"

// Models that may be quantized: values of [Quantize].Of.
const (
	OfFullPrecision = "full precision" // the cell of the same configuration without quantizers
	OfInit          = "init"           // the model that trainings start from: model.init
)

// Quantize describes how the model of a cell is made by quantization instead of training, with the
// quantizer of the cell's configuration.
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
	keys := q.Keys()
	for i := range keys {
		q.given[keys[i].Name] = in.has(keys[i].Name)
		if keys[i].Name == "method" {
			keys[i].Is, keys[i].Default, keys[i].Doc = schema.OneOf(posttrain.RTN, posttrain.GPTQ, Unquantized), nil, ""
		}
	}
	in.read(append(keys, schema.Key{Name: "of", To: &q.Of, Is: schema.OneOf(OfFullPrecision, OfInit), Default: OfFullPrecision})...)
	for _, p := range q.Check() {
		if in.Good(in.key(p.Key)) {
			in.report(in.key(p.Key), p.Hint, "found %s", p.Found)
		}
	}
	return q
}

func (q *Quantize) arguments(c Cell) []string {
	if q.Method == Unquantized {
		return []string{"import", c.source, "--out", c.Run, "--context", strconv.Itoa(c.Config.Model.Context), "--lifeline"}
	}
	weights := c.Config.Quantizer.Weights
	args := []string{"quantize", c.source, "--out", c.Run, "--lifeline", "--quantizer", weights.Name}
	for _, key := range slices.Sorted(maps.Keys(weights.Params)) {
		args = append(args, "--set", key+"="+plaintoml.Setting{Value: weights.Params[key]}.Text())
	}
	if c.Config.Quantizer.Activations != nil {
		args = append(args, "--activations")
	}
	if q.Of == OfInit && !c.initIsRun() {
		args = append(args, "--context", strconv.Itoa(c.Config.Model.Context))
	}
	return append(args, schema.Arguments(q.Keys())...)
}

// initIsRun reports whether trainings start from a cage run, whose context is fixed.
func (c Cell) initIsRun() bool {
	if c.start > 0 {
		return true
	}
	i, err := config.ReadInitial(c.Config.Init, 0)
	return err == nil && i.Run
}

// text formats the quantization in the style of the cell's other settings. The hash of the cell
// depends on it, so defaults that the file does not state are omitted.
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

// hash returns a hash of the cell's configuration, and of its quantization.
func (c Cell) hash() (string, error) {
	hash, err := c.Config.Fingerprint()
	if err == nil && c.Quantize != nil {
		sum := sha256.Sum256([]byte(hash + c.Quantize.text()))
		hash = hex.EncodeToString(sum[:])
	}
	return hash, err
}

// findSources finds, for each quantized cell, the cell that trains the same in full precision.
func (r *reader) findSources(cells []Cell, plans []plan, axes []axis) error {
	trained := map[string]int{}
	for i, c := range cells {
		q := c.Config.Quantizer
		if c.Quantize != nil || q.Weights != nil || q.Activations != nil || len(q.Overrides) > 0 {
			continue
		}
		key, err := inFullPrecision(c.Config)
		if err != nil {
			return err
		}
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
		key, err := inFullPrecision(c.Config)
		if err != nil {
			return err
		}
		from, ok := trained[key]
		if problem, hint := c.quantizable(ok); problem != "" {
			e := r.ErrorAt(c.Quantize.at, "%s", problem)
			e.Hint = hint
			found.add(e, plans[i].name(axes))
		}
		if c.Quantize.Of == OfFullPrecision {
			c.made = from + 1
		}
	}
	r.Errs = append(r.Errs, found.list(len(cells))...)
	return nil
}

// inFullPrecision returns a hash of a configuration without its quantizers and its method.
func inFullPrecision(cfg *config.Config) (string, error) {
	full, err := cfg.Changed(func(c *config.Config) error {
		c.Quantizer, c.Method = config.Quantizer{}, cage.Settings{CAGE: cage.CAGE{Form: cage.Off}}
		return nil
	})
	if err != nil {
		return "", err
	}
	return full.Fingerprint()
}

// quantizable returns why the cell cannot be quantized, with a hint; "" if it can be.
func (c Cell) quantizable(hasSource bool) (problem, hint string) {
	q := c.Config.Quantizer
	full := q.Weights == nil && q.Activations == nil && len(q.Overrides) == 0
	switch {
	case !c.Config.Model.Language():
		return "a model of kind \"" + string(c.Config.Model.Kind) + "\" cannot be quantized after training", "want a language model"
	case c.Quantize.Method == Unquantized && (c.Quantize.Of != OfInit || c.initIsRun()):
		return "only a Hugging Face checkpoint in model.init can be taken as it is", `want of = "init"; a run that is there needs no cell, and a training in full precision no quantize`
	case c.Quantize.Method == Unquantized && full && c.Config.Init != "":
		return "", ""
	case c.Quantize.Method == Unquantized && !full:
		return "a model as it is has no quantizer", `set "quantizer.plugin" = "none"`
	case q.Weights == nil:
		return "the cell has no quantizer", "set quantizer.weights, or quantizer for activations, too"
	case len(q.Overrides) > 0:
		return "the cell has quantizer.overrides", "want one quantizer for all weights"
	case q.Activations != nil && (q.Activations.Name != q.Weights.Name || !reflect.DeepEqual(q.Activations.Params, q.Weights.Params)):
		return "weights and activations have different quantizers", "want the same for both, or none for activations"
	case c.Quantize.Of == OfInit && c.Config.Init == "":
		return "there is no model.init", `want it, or leave of = "init" out`
	case c.Quantize.Of == OfFullPrecision && !hasSource:
		return "no cell trains the same in full precision", `add one: the same settings with "quantizer.plugin" = "none"`
	case c.Quantize.Method == posttrain.GPTQ && c.Quantize.Data == "" && c.Quantize.Of == OfInit:
		return "there is no training set to calibrate with", "name a token file, a chat file or a text with data"
	}
	return "", ""
}

// placeRuns sets the run directory of each cell, and the source of each quantized one.
func (s *Study) placeRuns() error {
	for i := range s.Cells {
		c := &s.Cells[i]
		c.Run = c.Dir
		if c.Quantize != nil {
			c.Run = filepath.Join(c.Dir, rundir.StudyModel)
		}
	}
	for i := range s.Cells {
		c := &s.Cells[i]
		var err error
		c.Config, err = c.Config.Changed(func(cfg *config.Config) error {
			cfg.Train.Out = c.Run
			if c.start > 0 {
				cfg.Init = s.Cells[c.start-1].Run
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.source = c.Config.Init
		if c.Quantize != nil && c.Quantize.Of == OfFullPrecision {
			c.source = s.madeOf(*c).Run
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
	// A process whose parent has died may still be at work.
	for busy := true; busy && ctx.Err() == nil; {
		var err error
		if busy, err = atomicfile.BusyDir(r.study.run(c).Path); err != nil {
			return Interrupted, nil, err
		}
		if busy {
			pause(ctx, lockRetry)
		}
	}
	if ctx.Err() != nil {
		return Interrupted, nil, nil
	}
	if _, done, err := metrics.ReadNumbers(r.study.run(c).Summary()); err == nil && done { // a damaged one is replaced
		return Done, nil, nil
	}
	if left, err := r.study.run(c).Exists(); err != nil {
		return Interrupted, nil, err
	} else if left { // a damaged run
		if err := r.study.moveToStale(r.study.run(c).Path, c.ID+"-"+rundir.StudyModel); err != nil {
			return Interrupted, nil, err
		}
	}
	p := process{
		dir: r.study.dir(c), grace: r.study.grace(), log: logFile, environment: c.environment,
		threads: r.plan.Threads, command: slices.Concat(r.opts.Tool, c.Quantize.arguments(c)),
	}
	failure, err := p.run(ctx)
	switch {
	case err != nil:
		return Interrupted, nil, err
	case failure != nil && ctx.Err() != nil:
		return Interrupted, nil, nil
	case failure != nil:
		return Failed, failure, nil
	}
	return Done, nil, nil
}

// awaitSource waits until the model from which a cell is made is trained, or until its training is
// stopped. It returns a failure if the model will not be trained.
func (r *runner) awaitSource(ctx context.Context, c Cell) (ready bool, failure *Failure) {
	for ctx.Err() == nil {
		ready, decided, failure := r.source(c)
		if decided {
			return ready, failure
		}
		pause(ctx, interval)
	}
	return false, nil
}

// source reports whether the model from which cell c is made exists (ready), and whether that
// answer is final (decided): it is not while the model is still to be trained.
func (r *runner) source(c Cell) (ready, decided bool, failure *Failure) {
	of := r.study.madeOf(c)
	if of == nil {
		return true, true, nil
	}
	source := *of
	toBeTrained := slices.ContainsFunc(r.plan.Run, func(o Cell) bool { return o.ID == source.ID }) || r.stateOf(source) == Running
	if _, trained, err := metrics.ReadNumbers(r.study.run(source).Summary()); trained && err == nil && !(toBeTrained && r.stateOf(source) == Stale) {
		return true, true, nil
	}
	r.mu.Lock()
	stopped := r.stopped[source.ID]
	r.mu.Unlock()
	if stopped {
		return false, true, nil
	}
	if !toBeTrained || r.stateOf(source) == Failed {
		return false, true, &Failure{Error: fmt.Sprintf("the model that it is to be made of is not trained: %s", r.study.Label(source)), File: logFile}
	}
	return false, false, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// FindRemade gives the state [Stale] to models made from a stale model.
func (s *Study) FindRemade(results []Result) {
	s.markRemade(results, func(_, _ Cell) bool { return false })
}

// markRemade gives the state [Stale] to models whose source is stale, or whose source has been
// replaced according to remade.
func (s *Study) markRemade(results []Result, remade func(c, source Cell) bool) {
	for again := true; again; { // until models made from stale ones are stale, too
		again = false
		states := statesOf(results)
		for i, r := range results {
			c := r.Cell
			source := s.madeOf(c)
			begun := r.Trained() || c.Quantize == nil && (r.State == Interrupted || r.State == Failed)
			if source != nil && begun && (states[source.ID] == Stale || remade(c, *source)) {
				results[i] = Result{Cell: c, State: Stale, Err: "the model that it was made of is another one now: " + s.Label(*source)}
				again = true
			}
		}
	}
}
