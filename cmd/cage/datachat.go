package main

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/config"
)

// chatFlags are the flags of `data prepare` that conversations have beside those of texts.
type chatFlags struct {
	kind, template, trainOn, special, date string
	addTokens, plainMarks                  bool
	variables                              map[string]string
}

// The names of the flags for one kind of data.
var (
	onlyChat = []string{"template", "train-on", "special-in-content", "template-date", "template-var", "add-tokens", "plain-marks"}
	onlyText = []string{"separator", "max-bytes", "field", "shard-tokens"}
)

func (c *chatFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.kind, "kind", config.KindText, `"text", or "chat": conversations, of which the assistant's part is learned`)
	flags.StringVar(&c.template, "template", "", "chat: template of the text: "+strings.Join(chat.BuiltIn(), ", ")+" or a `FILE`; the model's own if not given")
	flags.StringVar(&c.trainOn, "train-on", string(chat.AllTurns), "chat: all_turns or last_turn of the assistant")
	flags.StringVar(&c.special, "special-in-content", string(chat.AllowSpecial), "chat: special tokens in messages: allow, or error")
	flags.BoolVar(&c.addTokens, "add-tokens", false, "chat: add the marks of the template that are no tokens, such as <|im_end|>, to the tokenizer")
	flags.BoolVar(&c.plainMarks, "plain-marks", false, "chat: marks of the template that are no tokens are ordinary text, instead of an error")
	flags.StringVar(&c.date, "template-date", chat.DefaultTime.Format(time.DateOnly), "chat: the `DATE` that templates take for today")
	flags.StringToStringVar(&c.variables, "template-var", nil, "chat: variable of the template, `NAME=TEXT` (repeatable)")
}

// check refuses flags that have no meaning for the kind of data.
func (c *chatFlags) check(cmd *cobra.Command) error {
	wrong := onlyChat
	switch c.kind {
	case config.KindText:
	case config.KindChat:
		wrong = onlyText
	default:
		return usageError{fmt.Errorf("--kind %q: want text or chat", c.kind)}
	}
	for _, name := range wrong {
		if cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s has no meaning with --kind %s", name, c.kind)}
		}
	}
	if c.addTokens && c.plainMarks {
		return usageError{fmt.Errorf("--add-tokens and --plain-marks exclude each other: the marks become tokens, or stay text")}
	}
	return nil
}

// prepare makes a dataset of conversations. opts are the flags that both kinds of data have, spec names the tokenizer.
func (c *chatFlags) prepare(cmd *cobra.Command, opts data.PrepareOptions, spec string, inputs []string) (*answer, error) {
	files, err := data.FindRows(data.RowOptions{Inputs: inputs, ValInputs: opts.ValInputs, Include: opts.Include, Format: opts.Format,
		Stdin: cmd.InOrStdin(), Out: opts.Out, Owns: dataset.Conversations.Owns, Columns: chat.Columns})
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	o := chat.PrepareOptions{
		Rows: chatRows(files.Rows()), Out: opts.Out, ValFraction: opts.ValFraction, Seed: opts.Seed,
		TrainOn: chat.TrainOn(c.trainOn), Special: chat.Special(c.special), Marks: c.marks(), SkipBad: opts.SkipBad,
	}
	due := throttle(2 * time.Second)
	o.Progress = func(rows int64) {
		if due() {
			fmt.Fprintf(cmd.ErrOrStderr(), "%d conversations\n", rows)
		}
	}
	if len(opts.ValInputs) > 0 {
		o.ValRows = chatRows(files.ValRows())
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
	return &answer{preparedChat{m, files.LeftOut}, func(w io.Writer) {
		printChat(w, opts.Out, m)
		printLeftOut(w, files.LeftOut)
	}}, nil
}

func (c *chatFlags) marks() chat.Marks {
	switch {
	case c.addTokens:
		return chat.AddMarks
	case c.plainMarks:
		return chat.PlainMarks
	}
	return chat.RefuseMarks
}

// preparedChat is a dataset of conversations as printed.
type preparedChat struct {
	*chat.Manifest
	LeftOut []data.LeftOut `json:"left_out"` // files that were found and not taken
}

// chatRows converts rows of files to those that package chat reads.
func chatRows(rows iter.Seq2[data.InputRow, error]) chat.Rows {
	return func(yield func(chat.Row, error) bool) {
		for row, err := range rows {
			r := chat.Row{Text: bytes.Clone(row.Text)}
			if row.Row.Err != nil {
				r.Place, r.Err = row.Path, row.Row.Err
			} else if err == nil {
				r.Place = fmt.Sprintf("%s: %s %d", row.Path, row.Unit, row.Number)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// openTemplate opens the template with its date and variables. spec is where the tokenizer is, and with it the model's own template.
func (c *chatFlags) openTemplate(spec string, tok tokenizer.Tokenizer) (*chat.Template, error) {
	t, err := chat.OpenTemplate(c.template, spec, tokenizer.AddsBOS(tok))
	if err != nil {
		return nil, fmt.Errorf("--template: %w", err)
	}
	if t.Time, err = time.Parse(time.DateOnly, c.date); err != nil {
		return nil, usageError{fmt.Errorf("--template-date %q: want a date such as 2024-07-26", c.date)}
	}
	t.Variables = map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(c.variables)) {
		t.Variables[name] = c.variables[name]
	}
	return t, nil
}

func printChat(w io.Writer, dir string, m *chat.Manifest) {
	row := func(name, file string, p dataset.Part) []string {
		return []string{name, fmt.Sprint(p.Documents), fmt.Sprint(p.Tokens), fmt.Sprint(p.Learned), fmt.Sprint(p.Longest), filepath.Join(dir, file)}
	}
	table(w, [][]string{{"", "conversations", "tokens", "learned", "longest", "file"},
		row("training", dataset.Conversations.Train, m.Train), row("validation", dataset.Conversations.Val, m.Val)})
	fmt.Fprintf(w, "template %s, loss on %s; tokenizer %s, vocabulary %d, %.1f s\n", m.Template, m.TrainOn, m.Tokenizer.Name, m.Tokenizer.VocabSize, m.Seconds)
	if len(m.AddedTokens) > 0 {
		var list []string
		for _, token := range m.AddedTokens {
			list = append(list, fmt.Sprintf("%s (%d)", token.Content, token.ID))
		}
		fmt.Fprintf(w, "added to the tokenizer: %s; a model with fewer than %d token ids needs model.new_tokens\n",
			strings.Join(list, ", "), m.Tokenizer.VocabSize)
	}
	left := [][]string{{"left out", "rows", "the first"}}
	for _, d := range m.Dropped {
		left = append(left, []string{string(d.Reason), fmt.Sprint(d.Rows), d.First})
	}
	if m.Bad > 0 {
		left = append(left, []string{"bad", fmt.Sprint(m.Bad), m.FirstBad})
	}
	if len(left) > 1 {
		table(w, left)
	}
}
