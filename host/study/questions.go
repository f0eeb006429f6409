package study

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/internal/vfs"
)

// evaluation is a set of questions for a model, such as those of a benchmark.
type evaluation interface {
	// ID identifies the evaluation and is valid as a file name. Evaluations with equal ID and Rows ask
	// a model the same questions.
	ID() string
	// Metrics lists the quantities that are measured, in order.
	Metrics() []measure
	// Arguments returns the arguments of the cage command that asks a cell's model and writes the
	// answers to the directory out. When it is run again with the same arguments, the
	// command continues where it was interrupted. Its output is written to [outputFile] in out.
	Arguments(c Cell, out string) []string

	// Read returns the results that the command has written to out, by metric. The command's logs do
	// not affect them.
	Read(out vfs.Path) (map[string]float64, error)
	// Items returns the values of a metric for each question, or sequence of tokens, of which the
	// result is the mean; none where they are not known.
	Items(out vfs.Path, metric string) ([]float64, error)
	// Rows returns a hash of the files from which the questions are made, or an error if one is
	// missing or unreadable.
	Rows() (string, error)
	// Check reads these files and makes the questions, to find problems before any model is asked.
	Check() error
}

// outputFile is the name of the file with the command's output.
const outputFile = "output.json"

type measure struct {
	Name   string // such as "hellaswag.acc_norm"
	Higher bool   // whether higher is better
}

// identify makes an ID from the name of an evaluation and the settings that define it.
func identify(name string, of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // strings and numbers only
	}
	sum := sha256.Sum256(text)
	const longest = 60 // in bytes, without the hash
	name = strings.Trim(notInFileNames.ReplaceAllString(name, "-"), "-.")
	return name[:min(len(name), longest)] + "-" + hex.EncodeToString(sum[:6])
}

func hashFiles(files []string) (string, error) {
	all := sha256.New()
	for _, path := range files {
		one, err := fileHash(vfs.At(path))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(all, one)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// validationLoss measures the loss of a quantized model on the run's validation set; for a trained
// model, training measures it.
type validationLoss struct {
	Batches int // number of batches; 0 means all
}

func (e *validationLoss) ID() string { return identify("validation", e) }

// Metrics returns the metrics that a run's summary also has.
func (e *validationLoss) Metrics() []measure {
	return []measure{{"val_loss", false}, {"val_ppl", false}}
}

func (e *validationLoss) Arguments(c Cell, _ string) []string {
	return []string{"eval", c.Run, "--batches", strconv.Itoa(e.Batches), "--json", "--lifeline"}
}

func (e *validationLoss) Read(out vfs.Path) (map[string]float64, error) {
	var output struct {
		Loss *metrics.Number `json:"loss"`
	}
	if err := plainjson.ReadFile(out.Join(outputFile), &output); err != nil {
		return nil, err
	}
	if output.Loss == nil {
		return nil, fmt.Errorf("%s: no loss", out.Join(outputFile))
	}
	loss := float64(*output.Loss)
	return map[string]float64{"val_loss": loss, "val_ppl": math.Exp(loss)}, nil
}

// Items returns none.
func (e *validationLoss) Items(vfs.Path, string) ([]float64, error) { return nil, nil }

// Rows returns "", because the run identifies its validation set by a hash.
func (e *validationLoss) Rows() (string, error) { return "", nil }

func (e *validationLoss) Check() error { return nil }

// reference compares predictions with those of another model, like `cage eval --reference`.
type reference struct {
	Model  string // run directory or Hugging Face checkpoint; in the file also OfInit
	Tokens int    // number of tokens of the validation set; 0 means all
}

func (e *reference) keys() []schema.Key {
	return []schema.Key{
		{Name: "reference", To: &e.Model, Is: schema.NonEmpty(`that names a model, or "init"`)},
		{Name: "tokens", To: &e.Tokens, Is: schema.From(0, schema.Most), Default: 0},
	}
}

func (e *reference) ID() string { return identify("reference", e) }

func (e *reference) Metrics() []measure { return []measure{{"kl", false}, {"agreement", true}} }

// Arguments names the validation set, which a model made from the initial one does not have, and
// the number of sequences, because batches have another size there.
func (e *reference) Arguments(c Cell, _ string) []string {
	context := c.Config.Model.Context
	return []string{"eval", c.Run, "--reference", e.Model, "--data", c.Config.Data.Validation,
		"--sequences", strconv.Itoa((e.Tokens + context - 1) / context), "--json", "--lifeline"}
}

func (e *reference) Read(out vfs.Path) (map[string]float64, error) {
	var output struct {
		KL        *metrics.Number `json:"kl"`
		Agreement *metrics.Number `json:"agreement"`
	}
	path := out.Join(outputFile)
	if err := plainjson.ReadFile(path, &output); err != nil {
		return nil, err
	}
	if output.KL == nil || output.Agreement == nil {
		return nil, fmt.Errorf("%s: no kl or no agreement", path)
	}
	return map[string]float64{"kl": float64(*output.KL), "agreement": float64(*output.Agreement)}, nil
}

// Items returns the values of each sequence; versions before did not keep them.
func (e *reference) Items(out vfs.Path, metric string) ([]float64, error) {
	var output struct {
		Sequences map[string][]metrics.Number `json:"sequences"`
	}
	err := plainjson.ReadFile(out.Join(outputFile), &output)
	list := output.Sequences[metric]
	if list == nil {
		return nil, err
	}
	return lists.Map(list, func(x metrics.Number) float64 { return float64(x) }), err
}

// Rows returns a hash of the model's weights.
func (e *reference) Rows() (string, error) {
	files, err := filepath.Glob(filepath.Join(e.Model, "*.safetensors"))
	if list, _ := checkpoint.List(rundir.At(e.Model).Checkpoints()); len(list) > 0 {
		files = []string{list[len(list)-1].Path.Name}
	}
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no weights: want a run directory or a Hugging Face checkpoint", e.Model)
	}
	if err != nil {
		return "", err
	}
	return hashFiles(files)
}

func (e *reference) Check() error {
	_, err := config.ReadInitial(e.Model, 0)
	return err
}

// taskQuestions asks the questions of evaluation tasks, like `cage eval --tasks`.
type taskQuestions struct {
	tasks.Settings
	List []*tasks.Task // the tasks that the settings name
}

func (e *taskQuestions) ID() string {
	names := lists.Map(e.List, func(t *tasks.Task) string { return t.Name })
	return identify(strings.Join(names, "-"), []any{
		lists.Map(e.List, (*tasks.Task).Hash), e.Source.Shots, e.Source.Limit, e.Batch,
		e.MaxTokens, e.Chat, e.OneTurn,
	})
}

// Metrics returns "TASK.METRIC", followed by a comma and the filter if the task has filters.
func (e *taskQuestions) Metrics() (list []measure) {
	for _, t := range e.List {
		for _, name := range t.MetricNames() {
			list = append(list, measure{metricName(t, name), tasks.HigherIsBetter(name)})
		}
	}
	return list
}

func metricName(t *tasks.Task, name string) string {
	return t.Name + "." + strings.TrimSuffix(name, ","+tasks.NoFilter)
}

func (e *taskQuestions) Arguments(c Cell, out string) []string {
	command := []string{"eval", c.Run, "--out", out, "--json", "--lifeline"}
	return append(command, schema.Arguments(e.Keys())...)
}

func (e *taskQuestions) Read(out vfs.Path) (map[string]float64, error) {
	path := out.Join("results.json")
	var file struct {
		Results map[string]map[string]any `json:"results"`
	}
	if err := plainjson.ReadFile(path, &file); err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for _, t := range e.List {
		for _, name := range t.MetricNames() {
			x, err := strconv.ParseFloat(fmt.Sprint(file.Results[t.Name][name]), 64)
			if err != nil {
				return nil, fmt.Errorf("%s has no number %s of the task %s", path, name, t.Name)
			}
			found[metricName(t, name)] = x
		}
	}
	return found, nil
}

// Items returns the values of each question.
func (e *taskQuestions) Items(out vfs.Path, metric string) ([]float64, error) {
	for _, t := range e.List {
		for _, name := range t.MetricNames() {
			if metricName(t, name) == metric && !strings.HasPrefix(name, tasks.Perplexity) {
				return tasks.ItemValues(out, t.Name, name)
			}
		}
	}
	return nil, nil
}

func (e *taskQuestions) Rows() (string, error) {
	var files []string
	for _, t := range e.List {
		questions, examples, err := e.Source.Files(t)
		if err != nil {
			return "", fmt.Errorf("%s: %w", t.Name, err)
		}
		files = slices.Concat(files, questions, examples)
	}
	return hashFiles(files)
}

func (e *taskQuestions) Check() error {
	encoder := &tasks.Encoder{
		Encode: func(text string) ([]int32, error) { return []rune(text), nil },
		BOS:    -1, Context: math.MaxInt32,
	}
	for _, t := range e.List {
		if _, _, err := e.Source.Items(t, encoder, tasks.Options{}); err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return nil
}

// rulerQuestions measures with the RULER benchmark how much context a model can really use, like
// `cage ruler`.
type rulerQuestions struct {
	ruler.Settings              // with ascending lengths
	Tasks          []ruler.Task // the tasks that the settings name
	Batch          int          // number of prompts answered at once
}

func (e *rulerQuestions) ID() string {
	names := lists.Map(e.Tasks, func(t ruler.Task) string { return t.Name })
	f := e.Files
	return identify("ruler", []any{
		e.Lengths, e.Samples, names, f.Words != "", f.Essay != "", f.Squad != "", f.Hotpot != "",
		e.Template, e.Batch,
	})
}

// Metrics returns the average, the average at each length, and the scores of the tasks whose inputs
// are given, in percent: "ruler.average", "ruler.4096", "ruler.4096.vt".
func (e *rulerQuestions) Metrics() []measure {
	given := ruler.Inputs{Words: &ruler.Words{}} // represents the inputs whose files are named
	if e.Files.Essay != "" {
		given.Essay = "."
	}
	if e.Files.Squad != "" {
		given.Squad = &ruler.Documents{}
	}
	if e.Files.Hotpot != "" {
		given.Hotpot = &ruler.Documents{}
	}
	list := []measure{{"ruler.average", true}}
	for _, length := range e.Lengths {
		list = append(list, measure{lengthMetric(length), true})
		for _, t := range e.Tasks {
			if given.Missing(t) == "" {
				list = append(list, measure{lengthMetric(length) + "." + t.Name, true})
			}
		}
	}
	return list
}

func lengthMetric(length int) string { return "ruler." + strconv.Itoa(length) }

func (e *rulerQuestions) Arguments(c Cell, out string) []string {
	batch := strconv.Itoa(e.Batch)
	command := []string{"ruler", c.Run, "--batch", batch, "--out", out, "--json", "--lifeline"}
	return append(command, schema.Arguments(e.Keys())...)
}

func (e *rulerQuestions) Read(out vfs.Path) (map[string]float64, error) {
	var r ruler.Report
	if err := plainjson.ReadFile(out.Join(outputFile), &r); err != nil {
		return nil, err
	}
	found := map[string]float64{"ruler.average": r.Average}
	for _, l := range r.Lengths {
		found[lengthMetric(l.Length)] = l.Average
		for name, score := range l.Scores {
			found[lengthMetric(l.Length)+"."+name] = score
		}
	}
	for _, m := range e.Metrics() {
		if _, ok := found[m.Name]; !ok {
			return nil, fmt.Errorf("%s has no %s", out.Join(outputFile), m.Name)
		}
	}
	return found, nil
}

// Items returns none.
func (e *rulerQuestions) Items(vfs.Path, string) ([]float64, error) { return nil, nil }

func (e *rulerQuestions) Rows() (string, error) {
	var files []string
	if e.Files.Words != "" {
		lists := []string{"adjectivelist.txt", "english_words.json", "nounlist.txt", "verblist.txt"}
		for _, name := range lists { // the second may be missing
			path := filepath.Join(e.Files.Words, name)
			if _, err := os.Stat(path); name != lists[1] || !errors.Is(err, fs.ErrNotExist) {
				files = append(files, path)
			}
		}
	}
	files = append(files, e.Files.Essay, e.Files.Squad, e.Files.Hotpot)
	return hashFiles(slices.DeleteFunc(files, func(path string) bool { return path == "" }))
}

func (e *rulerQuestions) Check() error {
	_, err := e.Files.Read()
	return err
}
