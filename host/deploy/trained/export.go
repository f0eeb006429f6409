package trained

import (
	"cmp"
	"encoding/json/v2"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// Export returns the model in the form that package export needs. Its weights are read from the
// device one by one, while t is open. The caller adds the settings of the export to the card.
func (t *Model) Export() (*export.Model, error) {
	if !t.Config.Model.Language() {
		return nil, fmt.Errorf("%s: a model of kind %q cannot be exported", t.Dir, t.Config.Model.Kind)
	}
	settings := t.Config.Model
	settings.FillIn()
	m := &export.Model{Settings: settings, Params: t.built.Compiled.Plan().Model.Params(),
		Latent: t.latent, Quantized: t.quantized}
	m.LoRA = t.Config.Adapters
	if m.Adapters = m.LoRA.Of(settings); len(m.Adapters) > 0 && t.Record.Initial.Run == "" {
		m.Base = repositoryOf(t.Record.Initial.Path)
		for _, dir := range t.Search.Candidates(m.LoRA.Init) {
			m.Base = cmp.Or(m.Base, nameIn(filepath.Join(dir, lora.PEFTConfigFile)))
		}
	}
	for _, o := range []struct{ role, what string }{
		{config.RoleKeys, "the keys of attention"}, {config.RoleValues, "the values of attention"},
		{config.RoleQueries, "the queries of attention"}, {config.RoleHead, "the input of the head"},
	} {
		if t.Config.Quantizer.Quantizes(o.role) && (o.role != config.RoleHead || settings.Tied()) {
			m.Warnings = append(m.Warnings, fmt.Sprintf("the run quantizes %s ([quantizer.%s]), but "+
				"programs that load the export do not", o.what, o.role))
		}
	}
	m.Activation = t.activation
	if kind := t.Average(); kind != "" {
		m.Notes = []string{fmt.Sprintf(
			"the weights are averages over steps of the training (train.average = %q)", kind)}
	}
	tok, err := t.tokenizer()
	if err != nil {
		return nil, err
	}
	files, err := t.tokenizerFiles(tok)
	if err != nil {
		return nil, err
	}
	if m.Tokenizer, err = t.exportTokenizer(tok, files); err != nil {
		return nil, err
	}
	learned := build.LearnedTokens(t.Config, tok, chat.EndOfTurn(files, tok))
	if err := t.describe(m, learned); err != nil {
		return nil, err
	}
	m.Card, err = t.card()
	return m, err
}

func (t *Model) latent(param string) ([]float32, error) {
	if lora.IsFactor(param) {
		factor, err := provenance.Factor(t.file, param)
		return factor.Data, err
	}
	return engine.Download[float32](t.state.Param(param))
}

// activation returns the quantizer of the inputs of a weight's layer, by its program for one token.
func (t *Model) activation(param string) (*export.Activation, error) {
	sites := t.built.Compiled.Plan().Model.(model.Language).ActivationSites(1, 1)
	feeds := func(s model.ActivationSite) bool { return slices.Contains(s.Feeds, param) }
	i := slices.IndexFunc(sites, feeds)
	if i < 0 {
		return nil, nil
	}
	site := sites[i]
	q, ok := t.built.Programs.Pieces[1][site.Name]
	if !ok {
		return nil, nil
	}
	q = q.ForEvaluation()
	kept := func(name string) (step.Tensor, error) {
		values, err := engine.Download[float32](t.state.Tensors[name])
		return step.Tensor{Name: name, Data: values}, err
	}
	quantize := func(row []float32) (value, scale []float32, err error) {
		inputs := map[string]reference.Tensor{}
		for _, in := range q.Program.Inputs {
			values := row
			if in.Name != spec.InputX {
				if values, err = step.LoadQuantizer(kept)(site.Name, q, in.Name); err != nil {
					return nil, nil, err
				}
			}
			wide := lists.Map(values, func(v float32) float64 { return float64(v) })
			inputs[in.Name] = reference.Floats(wide, in.Type.Shape...)
		}
		out, err := reference.Run32(q.Program, inputs)
		if err != nil {
			return nil, nil, err
		}
		return architecture.Float32s(out[spec.OutputValue].Float64s()),
			architecture.Float32s(out[spec.OutputScale].Float64s()), nil
	}
	return &export.Activation{Width: site.Width, Quantize: quantize}, nil
}

func (t *Model) quantized(param string) (*export.Quantized, error) {
	if p := t.Record.Posttrained; p != nil {
		for i := range p.Matrices {
			if w := &p.Matrices[i]; w.Name == param {
				return t.posttrained(w)
			}
		}
	}
	quantizes := func(r cage.Rule) bool { return r.Name == param && r.Quantizer != nil }
	if !slices.ContainsFunc(t.built.Compiled.Plan().Rules, quantizes) {
		return nil, nil
	}
	programs := t.built.Programs
	one := build.Programs{Weights: map[string]spec.Quantizer{param: programs.Weights[param]}}
	if changed := build.Changed(t.Record.Programs, one.Hashes()); len(changed) > 0 {
		return nil, fmt.Errorf("the quantizer has changed since the run, so Q(x) is not what was " +
			"trained: export with the plugin that the run had, or with --weights latent")
	}
	q, err := t.built.Compiled.Quantized(t.state, param)
	if err != nil {
		return nil, err
	}
	return &export.Quantized{Value: q.Value, Codes: q.Codes,
		Scale: q.Scale, ScaleShape: q.ScaleShape, Rotation: q.Rotation,
		Grid: programs.Weights[param].Grid, Settings: programs.Settings[param]}, nil
}

func (t *Model) describe(m *export.Model, learned huggingface.Tokens) error {
	d, err := rundir.ReadDescription(t.Dir)
	if err != nil {
		return err
	}
	if d.Config == nil {
		if from := t.Record.Initial; from != nil && (from.Run == "" || from.End != nil) {
			m.Warnings = append(m.Warnings, fmt.Sprintf("%s has no %s of the checkpoint that the model "+
				"comes from, as runs of earlier versions have none: a new one is written, with the "+
				"context of the run, %d tokens, and without settings of %s. Copy both files from the "+
				"checkpoint to %[1]s, and export again",
				t.Dir, huggingface.ConfigName, m.Settings.Context, tokenizer.GenerationFile))
		}
		return nil
	}
	if m.Description, err = d.For(m.Settings, learned); err != nil {
		return fmt.Errorf("%s: %w", t.Dir, err)
	}
	c, err := huggingface.ParseConfig(m.Description.Config, m.Settings.Context)
	if err != nil {
		return fmt.Errorf("%s: %w", t.Dir, err)
	}
	m.Positions, m.OtherWindow = c.MaxPositions, c.OtherWindow
	if m.Tokenizer.BOS == tokenizer.NoToken && len(c.Tokens.Begin) > 0 {
		m.Tokenizer.BOS = c.Tokens.Begin[0]
	}
	if m.Tokenizer.Pad == tokenizer.NoToken && len(c.Tokens.Pad) > 0 {
		m.Tokenizer.Pad = c.Tokens.Pad[0]
	}
	return nil
}

// exportTokenizer returns the tokenizer with its BOS, EOS and end-of-turn tokens, if known.
func (t *Model) exportTokenizer(
	tok tokenizer.Tokenizer, files map[string][]byte,
) (export.Tokenizer, error) {
	end, unknown := chat.ModelEnding(files, tok)
	ends := slices.Concat(t.Record.Initial.Ends(), []int32{end.Token})
	out, err := export.NewTokenizer(files, tok.Info(), ends...)
	if err != nil {
		return out, err
	}
	out.Turn = end.Token
	warn := func(format string, args ...any) {
		out.Warnings = append(out.Warnings, fmt.Sprintf(format, args...))
	}
	if _, ok := out.Files[tokenizer.ConfigFile]; !ok {
		warn("%s is missing, which was published with the tokenizer: AutoTokenizer then knows no token "+
			"that begins or ends a text, and no chat template. Copy the file to %s, with %s if there is "+
			"one, and export again", tokenizer.ConfigFile, t.Dir, tokenizer.TemplateFile)
	}
	if unknown != nil {
		warn("cannot determine the token that ends an answer: the chat template fails: %v", unknown)
	} else if end.Text != "" {
		warn("the chat template ends an answer with the text %q, which is not a special token: "+
			"programs continue after it unless they get it as a stop string", end.Text)
	}
	// Texts of token files begin with BOS, whether or not the tokenizer adds it elsewhere.
	texts := !t.Config.Untrained() && t.Config.Data.Kind == config.KindText
	out.AddBOS = tokenizer.AddsBOS(tok) || out.AddBOS && texts
	return out, nil
}

// tokenizerFiles returns the files of the tokenizer: its definition, and the files that were beside
// it when the run was made. For a built-in tokenizer, the run directory may have a template.
func (t *Model) tokenizerFiles(tok tokenizer.Tokenizer) (map[string][]byte, error) {
	files := map[string][]byte{}
	defined, ok := tok.(interface{ Definition() []byte })
	if !ok {
		return files, rundir.ReadFiles(files, vfs.At(t.Dir), tokenizer.CompanionFiles)
	}
	files[tokenizer.DefinitionFile] = defined.Definition()
	for _, folder := range t.tokenizerFolders() {
		content, err := folder.Join(tokenizer.DefinitionFile).ReadFile()
		if err != nil || tok.Info().Check(content) != nil {
			continue
		}
		if err := rundir.ReadFiles(files, folder, tokenizer.CompanionFiles); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (t *Model) tokenizerFolders() []vfs.Path {
	folders := []vfs.Path{vfs.At(t.Dir)}
	if path := t.Config.Data.Tokenizer; path != "" {
		for _, file := range t.Search.Candidates(path) {
			folders = append(folders, vfs.At(file), vfs.At(filepath.Dir(file)))
		}
	}
	for _, path := range t.Config.Data.Files() {
		for _, file := range t.Search.Candidates(path) {
			folders = append(folders, vfs.At(filepath.Dir(file)))
		}
	}
	if from := t.Record.Initial; from != nil && from.Path != "" {
		folders = append(folders, vfs.At(from.Path))
	}
	return folders
}

// baseOf returns the line of a model card that names the Hugging Face checkpoint from which weights
// originally come, and the licence in that checkpoint's own card; "" for what is not known.
func baseOf(from *provenance.Origin) (base, license string) {
	for from != nil && from.Run != "" {
		record, err := provenance.Read(rundir.At(from.Path))
		if err != nil {
			return "", ""
		}
		from = record.Initial
	}
	if from == nil {
		return "", ""
	}
	base = "# base_model: OWNER/" + filepath.Base(from.Path)
	if name := repositoryOf(from.Path); name != "" {
		base = "base_model: " + name
	}
	card, _ := os.ReadFile(filepath.Join(from.Path, "README.md")) // it may be missing
	if m := licenseLine.FindSubmatch(card); m != nil {
		license = string(m[1])
	}
	return base, license
}

// repositoryOf returns the name of the repository of the Hugging Face Hub from which a checkpoint
// comes, by its place in a cache or its config.json; "" if that is not known.
func repositoryOf(dir string) string {
	if m := cached.FindStringSubmatch(filepath.ToSlash(dir)); m != nil {
		return m[1] + "/" + m[2]
	}
	return nameIn(filepath.Join(dir, huggingface.ConfigName))
}

// cached matches a checkpoint in a cache of the Hub.
var cached = regexp.MustCompile(`/models--([\w.-]+?)--([\w.-]+)/snapshots/[^/]+/?$`)

// nameIn returns the repository that a file names, as transformers 4 or PEFT write it; "" if none.
func nameIn(file string) string {
	var config struct {
		Name string `json:"_name_or_path"`
		Base string `json:"base_model_name_or_path"`
	}
	text, err := os.ReadFile(file)
	if err == nil && json.Unmarshal(text, &config) == nil {
		if name := cmp.Or(config.Name, config.Base); huggingface.IsRepository(name) {
			return name
		}
	}
	return ""
}

// licenseLine matches the licence in the front matter of a model card.
var licenseLine = regexp.MustCompile(`(?m)\A---\n(?:[^-].*\n)*?license: *(\w[\w.-]*)$`)

// card describes the run's training, with its configuration at that time.
func (t *Model) card() (export.Card, error) {
	text, err := rundir.At(t.Dir).Config().ReadFile()
	if err != nil {
		return export.Card{}, err
	}
	card := export.Card{Name: filepath.Base(filepath.Clean(t.Dir)), Step: t.Step(),
		Config: string(text)}
	if p := t.Record.Posttrained; p != nil && p.Method != PyTorch {
		card.Posttrained = strings.ToUpper(p.Method) + " after the training"
		if c := p.Calibration; c != nil {
			card.Posttrained += fmt.Sprintf(", on %d sequences of %d tokens", c.Windows, c.Context)
		}
	}
	card.Base, card.License = baseOf(t.Record.Initial)
	s, err := metrics.ReadSummary(rundir.At(t.Dir).Summary())
	if err == nil && s.Steps == t.Step() && s.ValLoss != nil {
		card.Loss = fmt.Sprintf("%.4f nats per token", float64(*s.ValLoss))
	}
	return card, nil
}
