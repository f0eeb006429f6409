package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/internal/vfs"
)

// Load reads, checks and resolves the configuration at path. Overrides take precedence over the
// file. Each has the form "KEY=VALUE", as in --set, where KEY is a full dotted key and VALUE is
// TOML (strings in quotes). An index selects a table in an array of tables, as in
// "quantizer.overrides[0].bits=3"; the first unused index appends a table.
//
// The error is a [*plaintoml.Error] if the file cannot be read or parsed (which wraps the cause),
// otherwise [plaintoml.Errors] with all problems.
func Load(path string, overrides []string) (*Config, error) {
	doc, text, err := plaintoml.ReadFile(path, "a training run")
	if err != nil {
		return nil, err
	}
	return resolve(doc, text, overrides)
}

// Parse is like [Load] but takes the text of the file. path is used in messages and to determine
// the default of train.out.
func Parse(path string, text []byte, overrides []string) (*Config, error) {
	doc, err := plaintoml.Parse(path, text)
	if err != nil {
		return nil, err
	}
	return resolve(doc, text, overrides)
}

func resolve(doc *plaintoml.Document, text []byte, overrides []string) (*Config, error) {
	if len(overrides) == 0 && len(bytes.TrimSpace(text)) == 0 {
		return nil, &plaintoml.Error{File: doc.File(), Line: 1, Msg: "the file is empty",
			Hint: "want a TOML file that describes a training run"}
	}
	if doc.Lookup("study") != nil {
		return nil, doc.ErrorAt("study", "describes a study, not a training run").
			WithHint("want one run, or: cage study run " + doc.File())
	}
	d := newDecoder(doc)
	d.override(overrides)
	return d.result()
}

func (d *decoder) override(overrides []string) {
	changeAll(d, overrides, d.Document.Override, OverriddenKey)
}

// OverriddenKey returns the key of an override KEY=VALUE.
func OverriddenKey(override string) string {
	key, _, _ := strings.Cut(override, "=")
	return strings.TrimSpace(key)
}

// OverrideKeys changes a document as the overrides of [Load] do.
func OverrideKeys(doc *plaintoml.Document, overrides []string) plaintoml.Errors {
	d := newDecoder(doc)
	d.override(overrides)
	return d.Errs
}

// Resolve checks and resolves the configuration in a document, which it does not modify. settings
// replace values of the document; later ones take precedence over earlier ones. If initial is not
// nil, it is the model to start from, instead of the document's; its directory need not exist yet.
// The error is [plaintoml.Errors].
func Resolve(doc *plaintoml.Document, settings []plaintoml.Setting,
	initial *Initial) (*Config, error) {
	doc = doc.Clone()
	d := newDecoder(doc)
	if d.given = initial; initial != nil {
		settings = append(slices.Clone(settings), plaintoml.Setting{Key: initKey, Value: initial.Dir})
	}
	for len(settings) > 0 {
		n := 1 // those of one line belong together
		for n < len(settings) && settings[n].File == settings[0].File &&
			settings[n].Line == settings[0].Line {
			n++
		}
		changeAll(d, settings[:n], doc.Set, func(s plaintoml.Setting) string { return s.Key })
		settings = settings[n:]
	}
	return d.result()
}

// changeAll applies settings to the document and records the problems with them. Settings of
// method.strength replace lambda, and settings of lambda, and of another form or name, replace
// strength, unless both are among the settings. keyOf returns the key of a setting.
func changeAll[T any](
	d *decoder, settings []T, apply func(T) *plaintoml.Error, keyOf func(T) string,
) {
	given := map[string]bool{}
	method, _ := d.raw("method").(map[string]any)
	before := maps.Clone(method)
	for _, s := range settings {
		if problem := apply(s); problem != nil {
			d.Errs = append(d.Errs, problem)
		}
		given[keyOf(s)] = true
		if given["method"] { // replaces the whole table
			before = nil
		}
		d.expandShort()
	}
	method, _ = d.raw("method").(map[string]any)
	isNew := func(key string) bool {
		value, found := method[key]
		old, was := before[key]
		return found && (given["method."+key] || !(was && reflect.DeepEqual(value, old)))
	}
	other := isNew("form") && method["form"] != string(cage.Decoupled) ||
		isNew("name") && method["name"] != cage.NameCAGE
	switch strength, lambda := isNew("strength"), isNew("lambda"); {
	case strength && !lambda:
		delete(method, "lambda")
	case !strength && (lambda || other):
		delete(method, "strength")
	}
}

// result decodes the changed document. It fails if a change has failed.
func (d *decoder) result() (*Config, error) {
	if len(d.Errs) > 0 {
		return nil, d.Errs
	}
	cfg := d.decode()
	if err := d.Err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// SetSteps sets Train.Steps of a configuration that leaves them to the data, and the default of the
// strength, which depends on them. It returns an [*plaintoml.Error] if the schedule, the average or
// the strength is invalid for that many steps.
func (c *Config) SetSteps(steps int) error {
	c.Train.Steps = steps
	if c.Method.CAGE.Strength != nil && !c.IsSet("method.strength") {
		c.defaultStrength()
	}
	list := c.Train.averageProblems()
	if p, found := c.Schedule.Problem(c.Train.Steps); found {
		list = append(list, p)
	}
	list = append(list, c.strengthProblems()...)
	if len(list) > 0 {
		return c.ErrorAt(list[0].Key, "found %s", list[0].Found).
			WithHint(list[0].Hint)
	}
	return nil
}

// RunFile is the name of the configuration file in a run directory.
const RunFile = "run.toml"

// Keys of the initial model, of the number of token ids added to it, and of the token whose row
// initializes the new rows.
const (
	initKey      = "model.init"
	newTokensKey = "model.new_tokens"
	newRowsKey   = "model.new_rows_from"
)

func (c *Config) initKeys() []schema.Key {
	languages := architecture.Languages
	return []schema.Key{
		{Name: "init", To: &c.Init, For: languages, Default: "",
			Is: schema.Anything("that names a directory, or empty"),
			Doc: "directory of the initial weights: a Hugging Face checkpoint, or a run (its newest " +
				"checkpoint is used). The default sizes of the model are then those of the checkpoint; " +
				"empty: random initialization"},
		{Name: "new_tokens", To: &c.NewTokens, For: languages, Default: 0,
			Is: schema.From(0, schema.Most),
			Doc: "number of token ids beyond those of the model in init, for tokens added to its " +
				"tokenizer: the embedding and the output head get one row for each"},
		{Name: "new_rows_from", To: &c.NewRowsFrom, For: languages, Optional: "the mean of all rows",
			Is:  schema.From(0, schema.Most),
			Doc: "token id of the model in init whose row is copied to each of the new rows"},
	}
}

// Keys of [model] whose defaults are the values of the initial model.
var (
	// fixedKeys must have the values of the initial model.
	fixedKeys = []string{"kind", "layers", "width", "heads", "kv_heads", "head_size", "hidden",
		"vocab", "norm_eps", "head"}
	// pairsKey may differ only if the rows are reordered while they are read.
	pairsKey = "rope_pairs"
	// scalingKeys may differ, which allows longer sequences.
	scalingKeys = []string{"rope_theta", "rope_factor", "rope_low", "rope_high", "rope_original"}
	// factorKeys are like fixedKeys, but not in configurations of all kinds and not in older ones.
	factorKeys = []string{"attention_multiplier", "attn_logit_softcapping",
		"final_logit_softcapping", "embedding_multiplier", "residual_multiplier", "logits_scaling"}
	// newerKeys may differ. Resolved configurations of some kinds, and older ones, do not have them.
	newerKeys  = []string{"rope_scaling", "window"}
	contextKey = "context"
)

// Initial describes the model whose weights a run starts from.
type Initial struct {
	Dir          string
	Run          bool // whether Dir is a run of cage rather than a Hugging Face checkpoint
	Settings     architecture.Settings
	MaxPositions int // maximal number of tokens in a sequence; 0: unknown
}

// ReadInitial reads the settings, but not the weights, of the model in a run directory or Hugging
// Face checkpoint. context is the sequence length for the latter; 0 means its maximum.
func ReadInitial(dir string, context int) (*Initial, error) {
	path := filepath.Join(dir, RunFile)
	var cfg *Config
	doc, _, err := plaintoml.ReadFile(path, "a training run")
	if err == nil {
		d := newDecoder(doc)
		d.closed = true // a run's configuration contains all sizes
		cfg, err = d.result()
	}
	if err == nil {
		if !cfg.Model.Language() {
			return nil, fmt.Errorf("%s: a model of kind %q has no weights to start from",
				path, cfg.Model.Kind)
		}
		return &Initial{Dir: dir, Run: true, Settings: cfg.Model}, nil
	}
	hint := huggingface.Hint(dir)
	if !errors.Is(err, fs.ErrNotExist) && hint == "" {
		return nil, err
	}
	hub, err := huggingface.ReadConfig(vfs.At(dir), context)
	if errors.Is(err, fs.ErrNotExist) || hint != "" {
		return nil, fmt.Errorf("%s is neither a run directory nor a Hugging Face checkpoint: "+
			"it has neither %s nor %s%s", dir, RunFile, huggingface.ConfigName, hint)
	}
	if err != nil {
		return nil, err
	}
	return &Initial{Dir: dir, Settings: hub.Settings, MaxPositions: hub.MaxPositions}, nil
}

func (i *Initial) grownSettings(newTokens int) architecture.Settings {
	s := i.Settings
	s.Vocab += newTokens
	return s
}

// values returns the values of the keys that default to the initial model's. The vocabulary size
// includes newTokens.
func (i *Initial) values(newTokens int) map[string]any {
	values := map[string]any{}
	s := i.grownSettings(newTokens)
	for _, k := range s.Keys() {
		if slices.Contains(slices.Concat(fixedKeys, factorKeys, scalingKeys, newerKeys),
			k.Name) ||
			k.Name == pairsKey || k.Name == contextKey && i.Settings.Context > 0 {
			values["model."+k.Name] = k.Value()
		}
	}
	return values
}

func (i *Initial) problems(c *Config) (out schema.Problems) {
	s, grown := c.Model, i.grownSettings(c.NewTokens)
	theirs, rescaled := grown.Keys(), false
	for n, k := range s.Keys() {
		mine, found := k.Value(), theirs[n].Value()
		if reflect.DeepEqual(mine, found) {
			continue
		}
		rescaled = rescaled || slices.Contains(scalingKeys, k.Name)
		if slices.Contains(slices.Concat(fixedKeys, factorKeys), k.Name) ||
			k.Name == pairsKey && i.Run {
			out = append(out, schema.Problem{Key: "model." + k.Name,
				Found: fmt.Sprintf("%s, but the model in %s has %v", schema.Describe(mine), i.Dir, found),
				Hint:  "leave the key out: it is that of the model in " + initKey})
		}
	}
	out.Unless(i.MaxPositions == 0 || s.Context <= i.MaxPositions || rescaled, schema.Problem{
		Key: "model." + contextKey,
		Found: fmt.Sprintf("the integer %d, but the model in %s has %d positions",
			s.Context, i.Dir, i.MaxPositions),
		Hint: "want at most as many; longer sequences need rescaled positions, as by model.rope_factor"})
	if row := c.NewRowsFrom; row != nil && *row >= i.Settings.Vocab {
		out = append(out, schema.Problem{Key: newRowsKey, Hint: "want one of them",
			Found: fmt.Sprintf("the integer %d, but the model in %s has %d token ids",
				*row, i.Dir, i.Settings.Vocab)})
	}
	return out
}

// CheckInitial returns [plaintoml.Errors] about the keys whose values are incompatible with i.
func (c *Config) CheckInitial(i *Initial) error {
	var errs plaintoml.Errors
	for _, p := range i.problems(c) {
		errs = append(errs, c.ErrorAt(p.Key, "found %s", p.Found).WithHint(p.Hint))
	}
	if len(errs) == 0 {
		return nil
	}
	errs.Sort()
	return errs
}

// readInitial reads the initial model if it is needed for the value of an absent key.
func (d *decoder) readInitial() {
	if d.cfg.Init == "" || d.closed || !d.Good(initKey, "model") {
		return
	}
	if d.given != nil {
		d.initial = d.given
		return
	}
	var absent []string
	for _, name := range slices.Concat(fixedKeys, scalingKeys, []string{pairsKey}) {
		if key := "model." + name; !d.Given(key) {
			absent = append(absent, key)
		}
	}
	if len(absent) == 0 {
		return
	}
	if d.Given("model.preset") && d.cfg.Model.Preset != "" {
		d.Report("model.preset", "found with "+initKey,
			"leave one of them out: both determine the sizes of the model")
		return
	}
	var err error
	if d.initial, err = ReadInitial(d.cfg.Init, d.cfg.Model.Context); err != nil {
		d.Report(initKey, err.Error(), "want the directory of a Hugging Face checkpoint or of a run; "+
			"to resume a run without it, use the "+RunFile+" in the run directory")
		for _, key := range append(absent, "model.kind", "model."+contextKey) {
			d.Excuse(key) // they are missing only because of this error
		}
	}
}

// Imported returns the configuration of a run in directory out that only contains the model that
// from describes. context is the sequence length in tokens.
func Imported(from *Initial, context int, out string) (*Config, error) {
	d := newDecoder(plaintoml.New(from.Dir, map[string]any{
		"model": map[string]any{"init": from.Dir, "context": int64(context)},
		"train": map[string]any{"steps": int64(0), "batch": int64(1), "out": out},
	}))
	d.given = from
	return d.result()
}
