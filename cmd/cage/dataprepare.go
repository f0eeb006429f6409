package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/train/config"
)

const prepareHelp = `Turn texts into a dataset: a directory with train.tokens, val.tokens, the tokenizer
and a manifest. An input is a file, a directory, which is searched to any depth, a
pattern in which ** stands for directories of any depth, or - for the standard input.

By their names, files are JSONL (.jsonl, .jsonlines, .ndjson), Parquet (.parquet) or
plain text, each also compressed (.gz, .zst); --format says it of all. Every plain text
is a document, unless --separator divides it; of the other formats every row is one,
with its text in --field. Documents are split at random, by seed, into training and
validation; the same files and options give the same bytes. Each document has the
tokenizer's begin token before it and its end token behind it, where there are such
tokens.

Plain text that is not in UTF-8, hidden files and symbolic links are left out, and
listed with the reason. A row without text and a damaged file are errors. The text of
rows and of compressed files lies in a temporary file in DIR meanwhile.

With --kind chat the rows of JSONL and Parquet are conversations, of which a model is to
learn what the assistant says.

  cage data prepare "$(go env GOROOT)/src" --include '*.go' --out data/go
  cage data prepare 'web/**/*.jsonl.zst' --tokenizer tokenizer.json --out data/web
  cage data prepare talks.jsonl --kind chat --tokenizer MODEL --out data/talks`

func newDataPrepare() *cobra.Command {
	var opts data.PrepareOptions
	var spec string
	var conversations chatFlags
	cmd := &cobra.Command{
		Use:   "prepare INPUT...",
		Short: "Turn texts into token files",
		Long:  prepareHelp,
		Args:  atLeastOne("file, directory or pattern"),
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Out, "out", "", "directory `DIR` of the dataset (required)")
	flags.StringVar(&spec, "tokenizer", "bytes", `"bytes", or the path of a Hugging Face tokenizer.json or of its directory`)
	flags.StringVar((*string)(&opts.Format), "format", "", "text, jsonl or parquet, whatever the names of the files say")
	flags.StringVar(&opts.Field, "field", data.DefaultField, "field of JSONL, or column of Parquet, that has the text")
	flags.BoolVar(&opts.SkipBad, "skip-bad", false, "leave out rows without text and count them, instead of stopping at the first")
	flags.StringArrayVar(&opts.Include, "include", nil, "take only files of directories whose name matches `PATTERN` (repeatable)")
	flags.StringVar(&opts.Separator, "separator", "", "text between the documents of a plain text")
	flags.Float64Var(&opts.ValFraction, "validation", data.DefaultValFraction, "share of the documents for validation")
	flags.StringArrayVar(&opts.ValInputs, "validation-text", nil, "validation text: `INPUT`, instead of a share (repeatable)")
	flags.Uint64Var(&opts.Seed, "seed", data.DefaultSplitSeed, "seed of the split")
	flags.Int64Var(&opts.MaxBytes, "max-bytes", 0, "take at most this much text, at random; 0: all")
	flags.Int64Var(&opts.ShardTokens, "shard-tokens", 0, "divide the training tokens into files of about `N`; 0: one file")
	conversations.add(cmd)
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if err := conversations.check(cmd); err != nil {
			return nil, err
		}
		if err := checkPrepare(cmd, &opts); err != nil {
			return nil, err
		}
		if conversations.kind == config.KindChat {
			return conversations.prepare(cmd, opts, spec, args)
		}
		var err error
		if opts.Tokenizer, err = tokenizer.Open(spec); err != nil {
			return nil, fmt.Errorf("--tokenizer: %w", err)
		}
		opts.Inputs, opts.Stdin = args, cmd.InOrStdin()
		due := throttle(2 * time.Second)
		opts.Progress = func(p data.Progress) {
			if due() {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d documents, %.1f of %.1f MB\n", p.Stage, p.Documents, float64(p.Bytes)/1e6, float64(p.TotalBytes)/1e6)
			}
		}
		m, err := data.Prepare(cmd.Context(), opts)
		if err != nil {
			return nil, err
		}
		result := preparedTexts{m, float64(m.Train.Bytes+m.Val.Bytes) / 1e6 / m.Seconds}
		return &answer{result, func(w io.Writer) { result.print(w, opts.Out) }}, nil
	})
}

// preparedTexts is a dataset of texts as printed.
type preparedTexts struct {
	*data.Manifest
	MBPerSecond float64 `json:"mb_per_second"`
}

// checkPrepare refuses what is wrong with the flags by themselves.
func checkPrepare(cmd *cobra.Command, opts *data.PrepareOptions) error {
	if opts.Out == "" {
		return usageError{fmt.Errorf("--out is required: the directory of the dataset")}
	}
	if _, err := source.ParseFormat(string(opts.Format)); err != nil {
		return usageError{fmt.Errorf("--format: %w", err)}
	}
	if cmd.Flags().Changed("field") && opts.Field == "" {
		return usageError{fmt.Errorf("--field is empty: want the name of a field or column")}
	}
	if cmd.Flags().Changed("validation") && opts.ValFraction == 0 {
		return usageError{fmt.Errorf("--validation 0: want a share above 0, or --validation-text")}
	}
	if len(opts.ValInputs) > 0 && !cmd.Flags().Changed("validation") {
		opts.ValFraction = 0
	}
	return nil
}

func (p preparedTexts) print(w io.Writer, dir string) {
	m := p.Manifest
	file := filepath.Join(dir, dataset.Texts.Train)
	if n := len(m.Train.Shards); n > 0 {
		file = fmt.Sprintf("%s (%d files)", filepath.Join(dir, "train-*.tokens"), n)
	}
	table(w, [][]string{{"", "documents", "tokens", "file"},
		{"training", fmt.Sprint(m.Train.Documents), fmt.Sprint(m.Train.Tokens), file},
		{"validation", fmt.Sprint(m.Val.Documents), fmt.Sprint(m.Val.Tokens), filepath.Join(dir, dataset.Texts.Val)},
	})
	printRead(w, m.Read)
	printLeftOut(w, m.LeftOut)
	fmt.Fprintf(w, "tokenizer %s, vocabulary %d; %.1f MB of text in %.1f s, %.1f MB/s\n",
		m.Tokenizer.Name, m.Tokenizer.VocabSize, p.MBPerSecond*m.Seconds, m.Seconds, p.MBPerSecond)
}

// printRead prints what was read, by format, and which rows were left out.
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
		rows = append(rows, []string{name, fmt.Sprint(r.Files), count, fmt.Sprint(r.Documents), fmt.Sprintf("%.1f", float64(r.Bytes)/1e6)})
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

// printLeftOut prints which files were left out of a dataset, and why.
func printLeftOut(w io.Writer, list []data.LeftOut) {
	if len(list) == 0 {
		return
	}
	rows, byName := [][]string{{"left out", "files", ""}}, false
	for _, l := range list {
		rows = append(rows, []string{string(l.Reason), fmt.Sprint(l.Files), l.List()})
		byName = byName || l.Reason == data.Compressed || l.Reason == data.Parquet
	}
	table(w, rows)
	if byName {
		fmt.Fprintln(w, data.NameHint)
	}
}
