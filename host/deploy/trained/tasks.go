package trained

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// Tasks asks a model the questions of evaluation tasks.
type Tasks struct {
	Model *Model
	tasks.Settings
	Out string // directory for answers, samples and results; "": nothing is saved
	// Progress is called for each task; the function that it returns is called as answers arrive.
	Progress func(task string) func(done, of int)

	// items makes the questions of a task; nil: the Source does.
	items func(ctx context.Context, t *tasks.Task) ([]tasks.Item, error)
	// whole is set if prompts fit into the context, and are never truncated.
	whole bool

	tok      tokenizer.Tokenizer
	encoder  *tasks.Encoder
	template *chat.Template
}

// Score implements tasks.Model.
func (e *Tasks) Score(ctx context.Context, requests []score.Request, skip func(int) bool,
	each func([]int, []score.Score) error) error {
	return e.Model.Score(ctx, requests, skip, each)
}

// Generate implements tasks.Model.
func (e *Tasks) Generate(
	ctx context.Context, prompts [][]int32, tokens int, until []string,
) ([]string, error) {
	if e.whole {
		all := func(int32) bool { return false }
		return e.Model.ContinueAll(ctx, e.tok, prompts, generate.Options{Tokens: tokens}, nil, all)
	}
	if e.MaxTokens > 0 {
		tokens = e.MaxTokens
	}
	return e.Model.GenerateUntil(ctx, e.tok, prompts, tokens, until)
}

// Ask asks the tasks' questions, in order. Those whose answers are in Out are not asked again.
func (e *Tasks) Ask(ctx context.Context, list []*tasks.Task) (results []*tasks.Result, err error) {
	if e.encoder, e.tok, err = Encoder(e.Model); err != nil {
		return nil, err
	}
	if e.Chat {
		e.template, err = chat.OpenTemplate("", e.Model.Dir, tokenizer.AddsBOS(e.tok))
		if err != nil {
			return nil, fmt.Errorf("--chat: %w", err)
		}
	}
	if e.items == nil {
		// Missing files and invalid rows are found before the model is asked, which takes much longer
		// than to make the questions twice.
		for _, t := range list {
			if _, _, err := e.questions(t); err != nil {
				return nil, fmt.Errorf("%s: %w", t.Name, err)
			}
		}
	}
	if e.Out != "" {
		run, err := rundir.At(e.Out).Config().Exists()
		if err == nil && (run || IsHub(e.Out)) {
			err = fmt.Errorf("%s holds a model: give another --out", e.Out)
		}
		if err != nil {
			return nil, err
		}
		if err := tasks.AnswersDir(vfs.At(e.Out)).MkdirAll(); err != nil {
			return nil, err
		}
		lock, err := vfs.At(e.Out).Join(vfs.LockFile).Lock() // keeps other processes from writing to Out
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Out, err)
		}
		defer lock.Unlock()
		if err := tasks.CheckModel(vfs.At(e.Out), e.name()); err != nil {
			return nil, err
		}
		for _, t := range list {
			if err := tasks.CheckOurs(vfs.At(e.Out), t.Name); err != nil {
				return nil, err
			}
		}
	}
	for _, t := range list {
		r, err := e.askTask(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

func (e *Tasks) askTask(ctx context.Context, t *tasks.Task) (*tasks.Result, error) {
	var items []tasks.Item
	var all int
	var err error
	if e.items != nil {
		items, err = e.items(ctx, t)
	} else {
		items, all, err = e.questions(t)
	}
	if err != nil {
		return nil, err
	}
	settings := map[string]string{"model": e.name(), "context": strconv.Itoa(e.Model.Context()),
		"batch": strconv.Itoa(e.Batch), "max_tokens": strconv.Itoa(e.MaxTokens)}
	a := tasks.Questions{Task: t, Items: items, Until: t.UntilTexts(e.encoder), Batch: e.Batch,
		Progress: e.Progress(t.Name), Settings: settings}
	var path *vfs.Path
	if e.Out != "" {
		p := tasks.AnswersFile(vfs.At(e.Out), t.Name)
		path = &p
	}
	answers, err := tasks.Ask(ctx, path, e, a)
	if err != nil {
		return nil, err
	}
	r, err := tasks.Judge(t, items, answers)
	if err == nil {
		r.All = all
	}
	return r, err
}

func (e *Tasks) questions(t *tasks.Task) (items []tasks.Item, all int, err error) {
	return e.Source.Items(t, e.encoder, tasks.Options{Chat: e.template, OneTurn: e.OneTurn})
}

// Summarize returns the results in lm-eval's form and, if Out is set, writes them to it.
func (e *Tasks) Summarize(list []*tasks.Result) (tasks.Results, error) {
	model := map[string]string{"model": "cage", "model_args": "pretrained=" + e.Model.Dir,
		"step": strconv.Itoa(e.Model.Step())}
	if q := e.Model.quantizer; q != nil {
		model["quantizer"] = q.String()
	}
	results := tasks.Summarize(list, model)
	if e.Out == "" {
		return results, nil
	}
	return results, tasks.WriteResults(vfs.At(e.Out), list, results)
}

// name identifies the model, including its quantizers' programs.
func (e *Tasks) name() string {
	name := fmt.Sprintf("%s step %d", e.Model.Record.Run, e.Model.Step())
	if e.Model.Record.Run == "" {
		name = checkpointName(e.Model.Dir)
	}
	if q := e.Model.quantizer; q != nil {
		name += " quantized by " + q.String()
	}
	if programs := e.Model.Quantizers(); programs != "" {
		name += ", programs " + programs
	}
	return name
}

// Encoder returns the model's tokenizer and an encoder with its BOS and EOS tokens.
func Encoder(model *Model) (*tasks.Encoder, tokenizer.Tokenizer, error) {
	tok, err := model.Tokenizer()
	if err != nil {
		return nil, nil, err
	}
	info := tok.Info()
	e := &tasks.Encoder{Encode: tok.Encode, BOS: info.BOS, Prefix: info.BOS, Context: model.Context()}
	if !tokenizer.AddsBOS(tok) {
		e.BOS = -1
	}
	if e.Prefix < 0 {
		e.Prefix = info.EOS
	}
	if info.EOS >= 0 {
		e.EOS, err = tok.Decode([]int32{info.EOS})
	}
	return e, tok, err
}

// checkpointName identifies a Hugging Face checkpoint, and changes if its files are replaced.
func checkpointName(dir string) string {
	name := dir
	if abs, err := filepath.Abs(dir); err == nil {
		name = abs
	}
	files, _ := fs.Glob(os.DirFS(dir), "*.safetensors") // the pattern is well-formed
	for _, f := range files {
		if stat, err := os.Stat(filepath.Join(dir, f)); err == nil {
			name += fmt.Sprintf(" %s:%d:%d", stat.Name(), stat.Size(), stat.ModTime().UnixNano())
		}
	}
	// Settings that affect the computation or the end of texts; prompts are stored with the answers.
	for _, f := range []string{huggingface.ConfigName, tokenizer.GenerationFile} {
		if text, err := vfs.At(filepath.Join(dir, f)).ReadFile(); err == nil {
			name += fmt.Sprintf(" %s:%x", f, sha256.Sum256(text))
		}
	}
	return name
}
