package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/vfs"
)

func newData() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "data",
		Short: "Make, inspect and verify token files",
	})
	cmd.AddCommand(outlasts(newDataPrepare()), newDataTokenizer(), newDataShow(), newDataVerify())
	return cmd
}

func newDataTokenizer() *cobra.Command {
	var tokens int
	var out string
	cmd := &cobra.Command{
		Use:   "tokenizer FILE",
		Short: "Learn a tokenizer from a token file of bytes",
		Long: `Learn a tokenizer from the documents of a token file of bytes: byte-level BPE with the
words and the special tokens of Llama 3. Its directory is what --tokenizer wants.

  cage data prepare texts --out data/bytes
  cage data tokenizer data/bytes/train.tokens --tokens 4096 --out data/tokenizer
  cage data prepare texts --tokenizer data/tokenizer --out data/texts`,
		Args: notNegative(exactly(1, "one token file"), "tokens"),
	}
	cmd.Flags().IntVar(&tokens, "tokens", 4096, "tokens of the tokenizer")
	cmd.Flags().StringVar(&out, "out", "", "directory `DIR` of the tokenizer (required)")
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if out == "" {
			return nil, usageError{fmt.Errorf("--out is required: the directory of the tokenizer")}
		}
		f, err := dataset.Open(args[0])
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := data.LearnTokenizer(cmd.Context(), f, tokens, vfs.At(out))
		if err != nil {
			return nil, err
		}
		return inWords(info, "%s: %d tokens\n", out, info.VocabSize), nil
	})
}

func newDataShow() *cobra.Command {
	var verify bool
	var chat showFlags
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Describe a token file, or show rows of a chat file",
		Args:  exactly(1, "one token file or chat file"),
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "read the whole file and compare it with its hash")
	chat.add(cmd)
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		f, err := dataset.Open(args[0])
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if verify {
			if err := f.Verify(cmd.Context()); err != nil {
				return nil, err
			}
		}
		if f.Conversations() {
			return showChat(f, chat)
		}
		h := f.Header()
		return inTable(h, [][]string{
			{"tokens", fmt.Sprint(h.Tokens)}, {"documents", fmt.Sprint(h.Documents)}, {"bytes per token", fmt.Sprint(h.TokenBytes)},
			{"tokenizer", h.Tokenizer.Name}, {"vocabulary", fmt.Sprint(h.Tokenizer.VocabSize)},
			{"begin token", tokenName(h.Tokenizer.BOS)}, {"end token", tokenName(h.Tokenizer.EOS)}, {"sha256", h.SHA256},
		}), nil
	})
}

// tokenName is an id, or that there is none.
func tokenName(id int32) string {
	if id == tokenizer.NoToken {
		return "none"
	}
	return fmt.Sprint(id)
}

func newDataVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify PATH...",
		Short: "Read token files and datasets, and compare them with their hashes",
		Long: `Read token files, or the files of datasets that 'cage data prepare' made, and compare
them with their sizes and hashes, with the vocabulary and with the manifest. The exit
code is 1 when a file is damaged or missing. Training verifies its files by itself.`,
		Args: atLeastOne("token file or directory of a dataset"),
	}
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		files, rows, damaged := []verifiedFile{}, [][]string{}, 0
		for _, path := range args {
			found, err := dataset.Verify(cmd.Context(), path)
			if err != nil {
				return nil, err
			}
			for _, v := range found {
				f := verifiedFile{Path: v.Path, Intact: v.Err == nil, Tokens: v.Header.Tokens, SHA256: v.Header.SHA256}
				row := []string{v.Path, "intact", ""}
				if v.Err != nil {
					damaged++
					f.Error = v.Err.Error()
					row = []string{v.Path, "damaged", f.Error}
				} else if f.SHA256 != "" {
					row[2] = fmt.Sprintf("%d tokens", f.Tokens)
				}
				files, rows = append(files, f), append(rows, row)
			}
		}
		var err error
		if damaged > 0 {
			err = fmt.Errorf("%d of %d files are damaged or missing", damaged, len(files))
		}
		return inTable(files, rows), err
	})
}

// verifiedFile is a file as printed in JSON.
type verifiedFile struct {
	Path   string `json:"path"`
	Intact bool   `json:"intact"`
	Tokens int64  `json:"tokens,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Error  string `json:"error,omitempty"`
}
