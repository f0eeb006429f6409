package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

func newData() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "data",
		Short: "Make, inspect and verify token files",
	})
	cmd.AddCommand(outlasts(newDataPrepare()), newDataShow(), newDataVerify())
	return cmd
}

func newDataPrepare() *cobra.Command {
	var opts data.PrepareOptions
	var spec string
	cmd := &cobra.Command{
		Use:   "prepare TEXT...",
		Short: "Turn text files and directories into token files",
		Long: `Turn text files and directories into a dataset: a directory with train.tokens,
val.tokens, the tokenizer and a manifest. Directories are searched to any depth.
Every file is a document, unless --separator divides it. Documents are split at
random, by seed, into training and validation; the same files and options give the
same bytes. Files that are not plain text in UTF-8, hidden ones and symbolic links are
left out, and listed with the reason.

  cage data prepare "$(go env GOROOT)/src" --include '*.go' --out data/go`,
		Args: atLeastOne("text file or directory"),
	}
	asJSON := jsonFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&opts.Out, "out", "", "directory `DIR` of the dataset (required)")
	flags.StringVar(&spec, "tokenizer", "bytes", `"bytes", or the path of a Hugging Face tokenizer.json`)
	flags.StringArrayVar(&opts.Include, "include", nil, "take only files of directories whose name matches `PATTERN` (repeatable)")
	flags.StringVar(&opts.Separator, "separator", "", "text between the documents of a file")
	flags.Float64Var(&opts.ValFraction, "validation", data.DefaultValFraction, "share of the documents for validation")
	flags.StringArrayVar(&opts.ValInputs, "validation-text", nil, "validation text: file or directory `PATH`, instead of a share (repeatable)")
	flags.Uint64Var(&opts.Seed, "seed", data.DefaultSplitSeed, "seed of the split")
	flags.Int64Var(&opts.MaxBytes, "max-bytes", 0, "take at most this much text, at random; 0: all")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if opts.Out == "" {
			return usageError{fmt.Errorf("--out is required: the directory of the dataset")}
		}
		if cmd.Flags().Changed("validation") && opts.ValFraction == 0 {
			return usageError{fmt.Errorf("--validation 0: want a share above 0, or --validation-text")}
		}
		if len(opts.ValInputs) > 0 && !cmd.Flags().Changed("validation") {
			opts.ValFraction = 0
		}
		var err error
		if opts.Tokenizer, err = tokenizer.Open(spec); err != nil {
			return fmt.Errorf("--tokenizer: %w", err)
		}
		opts.Inputs = args
		opts.Progress = prepareProgress(cmd.ErrOrStderr())
		m, err := data.Prepare(cmd.Context(), opts)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd, m)
		}
		return printManifest(cmd.OutOrStdout(), opts.Out, m)
	}
	return cmd
}

// prepareProgress reports at most every two seconds.
func prepareProgress(w io.Writer) func(data.Progress) {
	last := time.Now()
	return func(p data.Progress) {
		if time.Since(last) < 2*time.Second {
			return
		}
		last = time.Now()
		fmt.Fprintf(w, "%s: %d documents, %.1f of %.1f MB\n", p.Stage, p.Documents, float64(p.Bytes)/1e6, float64(p.TotalBytes)/1e6)
	}
}

func printManifest(w io.Writer, dir string, m *data.Manifest) error {
	rows := [][]string{{"", "documents", "tokens", "file"},
		{"training", fmt.Sprint(m.Train.Documents), fmt.Sprint(m.Train.Tokens), filepath.Join(dir, data.TrainFile)},
		{"validation", fmt.Sprint(m.Val.Documents), fmt.Sprint(m.Val.Tokens), filepath.Join(dir, data.ValFile)},
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "tokenizer %s, vocabulary %d, %.1f s\n", m.Tokenizer.Name, m.Tokenizer.VocabSize, m.Seconds); err != nil {
		return err
	}
	return printLeftOut(w, m.LeftOut)
}

// printLeftOut says which files a dataset was not made of.
func printLeftOut(w io.Writer, list []data.LeftOut) error {
	if len(list) == 0 {
		return nil
	}
	rows, rowsOfJSON := [][]string{{"left out", "files", ""}}, false
	for _, l := range list {
		reason := string(l.Reason)
		if l.Reason.NotYet() {
			reason += " (not read yet)"
		}
		rows = append(rows, []string{reason, fmt.Sprint(l.Files), l.List()})
		rowsOfJSON = rowsOfJSON || l.Reason == data.JSONRows
	}
	if err := table(w, rows); err != nil || !rowsOfJSON {
		return err
	}
	_, err := fmt.Fprintln(w, data.InsistHint)
	return err
}

func newDataShow() *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Describe a token file",
		Args:  exactly(1, "one token file"),
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().BoolVar(&verify, "verify", false, "read the whole file and compare it with its hash")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := data.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if verify {
			if err := f.Verify(cmd.Context()); err != nil {
				return err
			}
		}
		h := f.Header()
		if *asJSON {
			return printJSON(cmd, h)
		}
		return table(cmd.OutOrStdout(), [][]string{
			{"tokens", fmt.Sprint(h.Tokens)}, {"documents", fmt.Sprint(h.Documents)}, {"bytes per token", fmt.Sprint(h.TokenBytes)},
			{"tokenizer", h.Tokenizer.Name}, {"vocabulary", fmt.Sprint(h.Tokenizer.VocabSize)}, {"sha256", h.SHA256},
		})
	}
	return cmd
}
