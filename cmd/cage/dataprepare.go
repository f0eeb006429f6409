package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/config"
)

const prepareHelp = `Tokenize texts into a dataset: a directory with train.tokens, val.tokens, the
tokenizer and a manifest. An INPUT is a file or a directory, which is searched
recursively.

The name of a file determines its format: Parquet (.parquet), JSONL (.jsonl,
.jsonlines, .ndjson) or plain text, the latter two also compressed (.gz, .zst);
--format overrides it for all files. A plain text file is one document, or several
divided by --separator. In JSONL and Parquet each row is a document, with its text in
--field. Documents are split at random, by --seed, into training and validation. The
same files and options give the same bytes. Each document begins with the tokenizer's
BOS token and ends with its EOS token, if it has these.

Text that is not valid UTF-8, hidden files and symbolic links are left out and listed
with the reason. A row without text and a damaged file are errors. The text of rows
and of compressed files is stored in a temporary file in DIR while the command runs.

With --kind chat, rows of JSONL and Parquet are conversations, and the loss is over the
tokens of the assistant's messages.

  cage data prepare "$(go env GOROOT)/src" --include '*.go' --out data/go
  cage data prepare web --include '*.jsonl.zst' --tokenizer tokenizer.json --out data/web
  cage data prepare talks.jsonl --kind chat --tokenizer MODEL --out data/talks`

func newDataPrepare() *cobra.Command {
	var opts data.PrepareOptions
	var spec string
	var conversations chatFlags
	cmd := &cobra.Command{
		Use:   "prepare INPUT...",
		Short: "Tokenize texts into token files",
		Long:  prepareHelp,
		Args:  atLeastOne("file or directory"),
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Out, "out", "", "`DIR` to write the dataset to (required)")
	flags.StringVar(&spec, "tokenizer", "bytes",
		`"bytes", or the path of a Hugging Face tokenizer.json or of its directory`)
	flags.StringVar((*string)(&opts.Format), "format", "",
		"format of all files: text, jsonl or parquet; default: by their names")
	flags.StringVar(&opts.Field, "field", data.DefaultField,
		"field of JSONL or column of Parquet with the text")
	flags.BoolVar(&opts.SkipBad, "skip-bad", false,
		"skip and count rows without text or, of conversations, that are not valid, instead of "+
			"failing at the first")
	flags.StringArrayVar(&opts.Include, "include", nil,
		"in directories, read only files whose name matches `PATTERN` (repeatable)")
	flags.StringVar(&opts.Separator, "separator", "",
		`text between the documents of a plain text file, with \n for a new line and \t for a tab`)
	flags.Float64Var(&opts.ValFraction, "validation", data.DefaultValFraction,
		"fraction of the documents used for validation")
	flags.StringArrayVar(&opts.ValInputs, "validation-text", nil,
		"take the validation documents from `INPUT` instead (repeatable)")
	flags.Uint64Var(&opts.Seed, "seed", data.DefaultSplitSeed, "seed of the split")
	flags.Int64Var(&opts.MaxBytes, "max-bytes", 0,
		"use at most this many bytes of text, chosen at random; 0: all")
	conversations.add(cmd)
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		if err := conversations.check(cmd); err != nil {
			return nil, err
		}
		if opts.Out == "" {
			return nil, usagef("--out is missing: want the directory of the dataset")
		}
		if _, err := source.ParseFormat(string(opts.Format)); err != nil {
			return nil, usagef("--format: %w", err)
		}
		if flags.Changed("field") && opts.Field == "" {
			return nil, usagef("--field is empty: want the name of a field or column")
		}
		if flags.Changed("validation") && opts.ValFraction == 0 {
			return nil, usagef("--validation 0: want a fraction above 0, or --validation-text")
		}
		if len(opts.ValInputs) > 0 && !flags.Changed("validation") {
			opts.ValFraction = 0
		}
		opts.Separator = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(opts.Separator)
		opts.Inputs = args
		if conversations.kind == config.KindChat {
			return conversations.prepare(cmd, opts, spec)
		}
		var err error
		if opts.Tokenizer, err = tokenizer.Open(spec); err != nil {
			return nil, fmt.Errorf("--tokenizer: %w", err)
		}
		due := throttle(2 * time.Second)
		opts.Progress = func(p data.Progress) {
			if due() {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d documents, %.1f of %.1f MB\n",
					p.Stage, p.Documents, float64(p.Bytes)/1e6, float64(p.TotalBytes)/1e6)
			}
		}
		m, err := data.Prepare(cmd.Context(), opts)
		if err != nil {
			return nil, err
		}
		result := preparedTexts{m, float64(m.Train.Bytes+m.Val.Bytes) / 1e6 / m.Seconds}
		return &output{result, func(w io.Writer) { result.print(w, opts.Out) }}, nil
	})
}

type preparedTexts struct {
	*data.Manifest
	MBPerSecond float64 `json:"mb_per_second"`
}

func (p preparedTexts) print(w io.Writer, dir string) {
	m := p.Manifest
	row := func(name, file string, p dataset.Part) []string {
		return []string{
			name, fmt.Sprint(p.Documents), fmt.Sprint(p.Tokens), filepath.Join(dir, file)}
	}
	table(w, [][]string{{"", "documents", "tokens", "file"},
		row("training", dataset.Texts.Train, m.Train), row("validation", dataset.Texts.Val, m.Val)})
	printRead(w, m.Read)
	printLeftOut(w, m.LeftOut)
	fmt.Fprintf(w, "tokenizer %s, vocabulary %d; %.1f MB of text in %.1f s, %.1f MB/s\n",
		m.Tokenizer.Name, m.Tokenizer.VocabSize, p.MBPerSecond*m.Seconds, m.Seconds, p.MBPerSecond)
}

func printRead(w io.Writer, list []data.Read) {
	rows, bad := [][]string{{"read", "files", "rows", "documents", "MB"}}, [][]string{}
	for _, r := range list {
		name, count := string(r.Format), ""
		if r.Compression != source.None {
			name += ", " + string(r.Compression)
		}
		if r.Format != source.Text {
			count = fmt.Sprint(r.Rows)
		}
		rows = append(rows, []string{name, fmt.Sprint(r.Files), count, fmt.Sprint(r.Documents),
			fmt.Sprintf("%.1f", float64(r.Bytes)/1e6)})
		if r.EmptyRows > 0 {
			bad = append(bad, []string{name + ": empty", fmt.Sprint(r.EmptyRows), ""})
		}
		if r.BadRows > 0 {
			bad = append(bad, []string{name + ": bad", fmt.Sprint(r.BadRows), r.FirstBad})
		}
	}
	table(w, rows)
	if len(bad) > 0 {
		table(w, append([][]string{{"left out", "rows", ""}}, bad...))
	}
}

func printLeftOut(w io.Writer, list []data.LeftOut) {
	if len(list) == 0 {
		return
	}
	rows, byName := [][]string{{"left out", "files", ""}}, false
	for _, l := range list {
		rows = append(rows, []string{string(l.Reason), fmt.Sprint(l.Files), l.List()})
		byName = byName || l.Reason == data.Binary
	}
	table(w, rows)
	if byName {
		fmt.Fprintln(w, data.NameHint)
	}
}

type chatFlags struct {
	kind, template, trainOn, date string
	addTokens, plainMarks         bool
	variables                     []string // NAME=TEXT
}

func (c *chatFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.kind, "kind", config.KindText,
		`"text", or "chat" for conversations, with the loss on the assistant's messages`)
	flags.StringVar(&c.template, "template", "", "chat: template: "+
		strings.Join(chat.BuiltIn(), ", ")+" or a `FILE`; default: the model's own")
	flags.StringVar(&c.trainOn, "train-on", string(chat.AllTurns),
		"chat: messages of the assistant in the loss: all_turns or last_turn")
	flags.BoolVar(&c.addTokens, "add-tokens", false, "chat: add delimiters of the template that "+
		"are not tokens, such as <|im_end|>, to the tokenizer")
	flags.BoolVar(&c.plainMarks, "plain-marks", false, "chat: treat delimiters of the template "+
		"that are not tokens as ordinary text, instead of failing")
	flags.StringVar(&c.date, "template-date", chat.DefaultTime.Format(time.DateOnly),
		"chat: current `DATE` for templates that print it")
	flags.StringArrayVar(&c.variables, "template-var", nil,
		"chat: set a variable of the template: `NAME=TEXT` (repeatable)")
}

func (c *chatFlags) check(cmd *cobra.Command) error {
	var wrong []string // flags of the other kind of data
	switch c.kind {
	case config.KindText:
		wrong = []string{
			"template", "train-on", "template-date", "template-var", "add-tokens", "plain-marks"}
	case config.KindChat:
		wrong = []string{"separator", "max-bytes", "field"}
	default:
		return usagef("--kind %q: want text or chat", c.kind)
	}
	for _, name := range wrong {
		if cmd.Flags().Changed(name) {
			return usagef("--%s cannot be used with --kind %s", name, c.kind)
		}
	}
	if c.addTokens && c.plainMarks {
		return usagef("--add-tokens and --plain-marks cannot be combined: want one of them")
	}
	return nil
}

// prepare creates a dataset of conversations. opts holds the flags shared with text datasets; spec
// is the name or path of the tokenizer.
func (c *chatFlags) prepare(
	cmd *cobra.Command, opts data.PrepareOptions, spec string,
) (*output, error) {
	files, err := data.FindRows(opts, dataset.Conversations, chat.Columns)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	o := chat.PrepareOptions{
		Rows: files.Rows(), Out: opts.Out, ValFraction: opts.ValFraction, Seed: opts.Seed,
		TrainOn: chat.TrainOn(c.trainOn), SkipBad: opts.SkipBad,
	}
	switch {
	case c.addTokens:
		o.Delimiters = chat.AddDelimiters
	case c.plainMarks:
		o.Delimiters = chat.PlainDelimiters
	default:
		o.Delimiters = chat.RefuseDelimiters
	}
	due := throttle(2 * time.Second)
	o.Progress = func(rows int64) {
		if due() {
			fmt.Fprintf(cmd.ErrOrStderr(), "%d conversations\n", rows)
		}
	}
	if len(opts.ValInputs) > 0 {
		o.ValRows = files.ValRows()
	}
	if o.Tokenizer, err = tokenizer.Open(spec); err != nil {
		return nil, fmt.Errorf("--tokenizer: %w", err)
	}
	if o.Template, err = c.openTemplate(spec, o.Tokenizer); err != nil {
		return nil, err
	}
	m, err := chat.Prepare(cmd.Context(), o)
	if err != nil {
		return nil, err
	}
	result := struct {
		*chat.Manifest
		LeftOut []data.LeftOut `json:"left_out"` // files found but not used
	}{m, files.LeftOut}
	return &output{result, func(w io.Writer) {
		printChat(w, opts.Out, m)
		printLeftOut(w, files.LeftOut)
	}}, nil
}

// openTemplate opens the chat template that the flags select, by default the one stored with the
// tokenizer at spec.
func (c *chatFlags) openTemplate(spec string, tok tokenizer.Tokenizer) (*chat.Template, error) {
	t, err := chat.OpenTemplate(c.template, spec, tokenizer.AddsBOS(tok))
	if err != nil {
		return nil, fmt.Errorf("--template: %w", err)
	}
	_, hub := tok.(*tokenizer.HuggingFace)
	if hub && tokenizer.AddsBOS(tok) && t.Tokens.BOS == "" && slices.Contains(chat.BuiltIn(), t.Name) {
		// Only the tokenizer.json names the token.
		if t.Tokens.BOS, err = tok.Decode([]int32{tok.Info().BOS}); err != nil {
			return nil, fmt.Errorf("--tokenizer: %w", err)
		}
	}
	if t.Time, err = time.Parse(time.DateOnly, c.date); err != nil {
		return nil, usagef("--template-date %q: want a date such as 2024-07-26", c.date)
	}
	for _, variable := range c.variables {
		name, text, found := strings.Cut(variable, "=")
		if !found {
			return nil, usagef("--template-var %s: want NAME=TEXT", variable)
		}
		if err := t.Set(name, text); err != nil {
			return nil, usagef("--template-var %s: %w", variable, err)
		}
	}
	return t, nil
}

func printChat(w io.Writer, dir string, m *chat.Manifest) {
	row := func(name, file string, p dataset.Part) []string {
		return []string{name, fmt.Sprint(p.Documents), fmt.Sprint(p.Tokens),
			fmt.Sprint(p.Learned), fmt.Sprint(p.Longest), filepath.Join(dir, file)}
	}
	table(w, [][]string{{"", "documents", "tokens", "in the loss", "longest", "file"},
		row("training", dataset.Conversations.Train, m.Train),
		row("validation", dataset.Conversations.Val, m.Val)})
	fmt.Fprintf(w, "template %s, loss on %s; tokenizer %s, vocabulary %d, %.1f s\n",
		m.Template, m.TrainOn, m.Tokenizer.Name, m.Tokenizer.VocabSize, m.Seconds)
	if d := m.Divided; d.Conversations > 0 {
		fmt.Fprintf(w, "conversations with several documents: %d (documents %+d, tokens %+d): "+
			"the template renders a turn\n"+
			"differently when more turns follow, so each answer is trained in the text that it ends. "+
			"To have one document each,\nuse --train-on last_turn, another --template, "+
			"or {%% generation %%} blocks around the assistant's text in the template\n",
			d.Conversations, d.Documents, d.Tokens)
	}
	if len(m.AddedTokens) > 0 {
		var list []string
		for _, token := range m.AddedTokens {
			list = append(list, fmt.Sprintf("%s (%d)", token.Content, token.ID))
		}
		fmt.Fprintf(w, "added to the tokenizer: %s; "+
			"a model with a vocabulary of fewer than %d tokens needs model.new_tokens\n",
			strings.Join(list, ", "), m.Tokenizer.VocabSize)
	}
	left := [][]string{{"left out", "rows", "first"}}
	for _, d := range m.Dropped {
		left = append(left, []string{string(d.Reason), fmt.Sprint(d.Rows), d.First})
	}
	for _, b := range m.BadReasons {
		left = append(left, []string{"bad: " + string(b.Reason), fmt.Sprint(b.Rows), b.First})
	}
	if len(left) > 1 {
		table(w, left)
	}
	if len(m.Ignored) > 0 {
		ignored := [][]string{{"ignored key", "rows", "first"}}
		for _, k := range m.Ignored {
			ignored = append(ignored, []string{k.Key, fmt.Sprint(k.Rows), k.First})
		}
		table(w, ignored)
	}
}
