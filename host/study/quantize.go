package study

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"

	"github.com/cage-qat/cage/host/method/cage"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// Methods of quantization after training.
const (
	RTN         = "rtn"  // round to nearest
	GPTQ        = "gptq" // column by column
	Unquantized = "none" // the model that trainings start from, unquantized
)

// What may be quantized: values of [Quantize].Of.
const (
	OfFullPrecision = "full precision" // the cell of the same configuration without quantizers
	OfInit          = "init"           // the model that trainings start from: model.init
)

// Quantize says that the model of a cell is not trained but quantized. Its fields are the flags of `cage quantize`; the
// quantizer is that of the cell's configuration.
type Quantize struct {
	Method          string   `json:"method"`
	Of              string   `json:"of"`
	Data            string   `json:"data,omitempty"`    // text or token file to calibrate with; empty means the training set
	Windows         *int     `json:"windows,omitempty"` // nil means the command's default, here and below
	Seed            *int     `json:"seed,omitempty"`
	Damping         *float64 `json:"damping,omitempty"`
	ActivationOrder bool     `json:"activation_order,omitempty"`
	OnePass         bool     `json:"one_pass,omitempty"`
	Scales          string   `json:"scales,omitempty"`

	at string // key in the file
}

// quantize reads the key that makes a cell one that is quantized: a method, or a table; nil where it is absent.
func (t *table) quantize() *Quantize {
	const name = "quantize"
	q := &Quantize{Of: OfFullPrecision, at: t.key(name)}
	if _, isTable := t.get(name).(map[string]any); !isTable {
		q.Method = t.text(name, RTN, GPTQ)
		if q.Method == "" {
			return nil
		}
		return q
	}
	in := t.table(name)
	defer in.finish()
	q.Method, q.Of = in.text("method", RTN, GPTQ, Unquantized), cmp.Or(in.text("of", OfFullPrecision, OfInit), OfFullPrecision)
	if !in.has("method") {
		in.report(in.key("method"), "want one of "+schema.Quoted([]string{RTN, GPTQ, Unquantized}), "missing")
	}
	q.Data, q.Scales = in.text("data"), in.text("scales", "auto", "original", "current")
	q.ActivationOrder, q.OnePass = in.flag("activation_order"), in.flag("one_pass")
	for name, to := range map[string]**int{"windows": &q.Windows, "seed": &q.Seed} {
		if n := in.count(name, 1<<31); in.has(name) {
			*to = &n
		}
	}
	if in.has("damping") {
		q.Damping = new(float64)
		in.read(schema.Key{Name: "damping", To: q.Damping, Is: schema.Above(0, 1)})
	}
	switch {
	case q.Scales == "current" && q.ActivationOrder:
		in.report(in.key("scales"), "leave one of them out", "scales = \"current\" does not go with activation_order, which enters all groups at once")
	case q.Method == GPTQ && q.Windows != nil && *q.Windows == 0:
		in.report(in.key("windows"), "want at least 1", "GPTQ needs a text to calibrate with")
	}
	return q
}

// arguments are those of the command cage that makes the run of a cell.
func (q *Quantize) arguments(c Cell) []string {
	if q.Method == Unquantized {
		return []string{"import", c.source, "--out", c.Run, "--context", strconv.Itoa(c.Config.Model.Context), "--lifeline"}
	}
	args := []string{"quantize", c.source, "--method", q.Method, "--out", c.Run, "--lifeline"}
	weights := c.Config.Quantizer.Weights
	args = append(args, "--quantizer", weights.Name)
	for _, key := range slices.Sorted(maps.Keys(weights.Params)) {
		args = append(args, "--set", key+"="+plaintoml.Setting{Value: weights.Params[key]}.Text())
	}
	flag := func(name, value string) { args = append(args, "--"+name+"="+value) }
	for _, f := range []struct {
		name string
		on   bool
	}{{"activations", c.Config.Quantizer.Activations != nil}, {"activation-order", q.ActivationOrder}, {"one-pass", q.OnePass}} {
		if f.on {
			flag(f.name, "true")
		}
	}
	for _, f := range []struct{ name, text string }{{"data", q.Data}, {"scales", q.Scales}} {
		if f.text != "" {
			flag(f.name, f.text)
		}
	}
	for _, f := range []struct {
		name string
		n    *int
	}{{"windows", q.Windows}, {"seed", q.Seed}} {
		if f.n != nil {
			flag(f.name, strconv.Itoa(*f.n))
		}
	}
	if q.Damping != nil {
		flag("damping", strconv.FormatFloat(*q.Damping, 'g', -1, 64))
	}
	if q.Of == OfInit && !c.initIsRun() {
		flag("context", strconv.Itoa(c.Config.Model.Context))
	}
	return args
}

// initIsRun tells whether trainings start from a run, whose context is fixed.
func (c Cell) initIsRun() bool {
	i, err := config.ReadInitial(c.Config.Init, 0)
	return err == nil && i.Run
}

// text is the setting as the cell's other settings are shown.
func (q *Quantize) text() string {
	text, err := json.Marshal(q)
	if err != nil {
		panic(err) // texts and numbers only
	}
	return string(text)
}

// hash is that of the cell's configuration, and of how it is quantized.
func (c Cell) hash() (string, error) {
	hash, err := c.Config.Fingerprint()
	if err == nil && c.Quantize != nil {
		sum := sha256.Sum256([]byte(hash + c.Quantize.text()))
		hash = hex.EncodeToString(sum[:])
	}
	return hash, err
}

// findSources finds for each cell that is quantized the one that is trained in full precision.
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
		if problem := c.quantizable(ok); problem != nil {
			e := r.doc.ErrorAt(c.Quantize.at, "%s", problem.found)
			e.Hint = problem.hint
			found.add(e, plans[i].name(axes))
		}
		c.from = from
	}
	r.errs = append(r.errs, found.list(len(cells))...)
	return nil
}

// inFullPrecision is a hash of what a configuration trains without quantizers.
func inFullPrecision(cfg *config.Config) (string, error) {
	full, err := cfg.Changed(func(c *config.Config) error {
		c.Quantizer, c.Method = config.Quantizer{}, cage.Settings{Form: cage.Off}
		return nil
	})
	if err != nil {
		return "", err
	}
	return full.Fingerprint()
}

type unquantizable struct{ found, hint string }

// quantizable says why the cell cannot be quantized.
func (c Cell) quantizable(hasSource bool) *unquantizable {
	q := c.Config.Quantizer
	full := q.Weights == nil && q.Activations == nil && len(q.Overrides) == 0
	switch {
	case !c.Config.Model.Language():
		return &unquantizable{"a model of kind \"" + string(c.Config.Model.Kind) + "\" cannot be quantized after training", "want a language model"}
	case c.Quantize.Method == Unquantized && (c.Quantize.Of != OfInit || c.initIsRun()):
		return &unquantizable{"only a Hugging Face checkpoint in model.init can be taken as it is", `want of = "init"; a run that is there needs no cell, and a training in full precision no quantize`}
	case c.Quantize.Method == Unquantized && full && c.Config.Init != "":
		return nil
	case c.Quantize.Method == Unquantized && !full:
		return &unquantizable{"a model as it is has no quantizer", `set "quantizer.plugin" = "none"`}
	case q.Weights == nil:
		return &unquantizable{"the cell has no quantizer", "set quantizer.weights, or quantizer for activations, too"}
	case len(q.Overrides) > 0:
		return &unquantizable{"the cell has quantizer.overrides", "want one quantizer for all weights"}
	case q.Activations != nil && (q.Activations.Name != q.Weights.Name || !reflect.DeepEqual(q.Activations.Params, q.Weights.Params)):
		return &unquantizable{"weights and activations have different quantizers", "want the same for both, or none for activations"}
	case c.Quantize.Of == OfInit && c.Config.Init == "":
		return &unquantizable{"there is no model.init", `want it, or leave of = "init" out`}
	case c.Quantize.Of == OfFullPrecision && !hasSource:
		return &unquantizable{"no cell trains the same in full precision", `add one: the same settings with "quantizer.plugin" = "none"`}
	case c.Quantize.Method == GPTQ && c.Quantize.Data == "" && c.Quantize.Of == OfInit:
		return &unquantizable{"there is no training set to calibrate with", "name a token file, a chat file or a text with data"}
	}
	return nil
}

// placeRuns says in which directories cells have their runs, and what is quantized there.
func (s *Study) placeRuns() error {
	for i := range s.Cells {
		c := &s.Cells[i]
		c.Run = c.Dir
		if c.Quantize != nil {
			c.Run = filepath.Join(c.Dir, rundir.StudyModel)
		}
		var err error
		if c.Config, err = c.Config.Changed(func(cfg *config.Config) error { cfg.Train.Out = c.Run; return nil }); err != nil {
			return err
		}
	}
	for i := range s.Cells {
		c := &s.Cells[i]
		switch {
		case c.Quantize == nil:
		case c.Quantize.Of == OfInit:
			c.source = c.Config.Init
		default:
			c.source = s.Cells[c.from].Run
		}
	}
	return nil
}
