package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/vfs"

	"github.com/cage-qat/cage/internal/safetext"
)

func newData() *cobra.Command {
	return group(&cobra.Command{Use: "data", Short: "Make, inspect and verify token files"},
		surviveSIGPIPE(newDataPrepare()), newDataTokenizer(), newDataShow(), newDataVerify())
}

func newDataTokenizer() *cobra.Command {
	var tokens int
	var out string
	cmd := &cobra.Command{
		Use:   "tokenizer FILE",
		Short: "Train a tokenizer on a token file of bytes",
		Long: `Train a tokenizer on the documents of a token file of bytes: byte-level BPE with the
pre-tokenizer and the special tokens of Llama 3. --tokenizer takes its directory.

  cage data prepare texts --out data/bytes
  cage data tokenizer data/bytes/train.tokens --tokens 4096 --out data/tokenizer
  cage data prepare texts --tokenizer data/tokenizer --out data/texts`,
		Args: notNegative(exactly(1, "one token file"), "tokens"),
	}
	cmd.Flags().IntVar(&tokens, "tokens", 4096, "size of the vocabulary")
	cmd.Flags().StringVar(&out, "out", "", "`DIR` to write the tokenizer to (required)")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		if out == "" {
			return nil, usagef("--out is missing: want the directory of the tokenizer")
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
		return textOutput(info, "%s: %d tokens\n", out, info.VocabSize), nil
	})
}

func newDataShow() *cobra.Command {
	var rows, length int
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Describe a token file, or print rows of a chat file",
		Args:  notNegative(exactly(1, "one token file or chat file"), "rows", "length"),
	}
	cmd.Flags().IntVar(&rows, "rows", 2, "chat file: number of rows to print")
	cmd.Flags().IntVar(&length, "length", 0,
		"chat file: tokens per row; 0: the length of the longest document, at most 2048")
	return withOutput(cmd, func(_ *cobra.Command, args []string) (*output, error) {
		f, err := dataset.Open(args[0])
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if f.Conversations() {
			length = cmp.Or(length, int(min(f.Header().Longest, maxDefaultRow)))
			listing := chatListing{Header: f.Header(), Length: length}
			if rows > 0 && f.Documents() > 0 {
				if err := listing.read(f, rows); err != nil {
					return nil, err
				}
			}
			return &output{listing, listing.print}, nil
		}
		h := f.Header()
		tokenName := func(id int32) string {
			if id == tokenizer.NoToken {
				return "none"
			}
			return fmt.Sprint(id)
		}
		t := h.Tokenizer
		return tableOutput(h, [][]string{
			{"tokens", fmt.Sprint(h.Tokens)}, {"documents", fmt.Sprint(h.Documents)},
			{"bytes of an id", fmt.Sprint(h.TokenBytes)},
			{"tokenizer", t.Name}, {"vocabulary", fmt.Sprint(t.VocabSize)},
			{"BOS token", tokenName(t.BOS)}, {"EOS token", tokenName(t.EOS)}, {"sha256", h.SHA256},
		}), nil
	})
}

func newDataVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify PATH...",
		Short: "Check token files and datasets against their hashes",
		Long: `Read token files, or the files of datasets written by 'cage data prepare', and check
their sizes, hashes, vocabularies and manifests. The exit code is 1 if a file is damaged
or missing. Training verifies its files, too.`,
		Args: atLeastOne("token file or directory of a dataset"),
	}
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		files, rows, damaged := []verifiedFile{}, [][]string{}, 0
		for _, path := range args {
			found, err := dataset.Verify(cmd.Context(), path)
			if err != nil {
				return nil, err
			}
			for _, v := range found {
				h := v.Header
				f := verifiedFile{
					Path: v.Path, Intact: v.Err == nil, Tokens: h.Tokens, SHA256: h.SHA256}
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
		return tableOutput(files, rows), err
	})
}

type verifiedFile struct {
	Path   string `json:"path"`
	Intact bool   `json:"intact"`
	Tokens int64  `json:"tokens,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Error  string `json:"error,omitempty"`
}

type chatListing struct {
	dataset.Header
	Length   int       `json:"row_length"` // in tokens
	RowCount int64     `json:"row_count"`
	LeftOut  int       `json:"left_out"` // documents without a token in the loss
	Rows     []chatRow `json:"rows"`     // the first ones
}

// chatRow is a row of a training batch. It holds one or more packed documents.
type chatRow struct {
	Documents []chatDocument `json:"documents"`
	Free      int            `json:"free"` // unused positions
}

type chatDocument struct {
	Tokens int        `json:"tokens"`
	Parts  []chatPart `json:"parts"`
}

// chatPart is a run of tokens in a document that are either all in the loss or all outside it.
type chatPart struct {
	Text   string `json:"text"`
	InLoss bool   `json:"learned"`
}

// Delimiters printed around text in the loss.
const (
	lossBegin = "⟦"
	lossEnd   = "⟧"
)

// maxDefaultRow limits the default row length, in tokens.
const maxDefaultRow = 2048

func (s *chatListing) read(f *dataset.File, count int) error {
	tok, err := tokenizer.Reopen(filepath.Dir(f.Path()), f.Header().Tokenizer)
	if err != nil {
		return err
	}
	sampler, err := dataset.NewRows(f, dataset.RowsConfig{
		Length: s.Length, Batch: 1, Epochs: 1, Packing: dataset.FirstFit, InOrder: true})
	if err != nil {
		return err
	}
	s.RowCount, s.LeftOut = sampler.Steps(), sampler.LeftOut()
	rows := dataset.RowsOf(make([]int32, dataset.Planes*(s.Length+1)), s.Length)
	for i := range min(int64(count), s.RowCount) {
		if _, err := sampler.At(i, 0, rows); err != nil {
			return err
		}
		texts, err := readRow(rows[0], tok)
		if err != nil {
			return err
		}
		s.Rows = append(s.Rows, texts)
	}
	return nil
}

func readRow(row dataset.Row, tok tokenizer.Tokenizer) (chatRow, error) {
	var out chatRow
	for at := 0; at < len(row.Tokens); {
		end := at + 1
		for end < len(row.Tokens) && row.Segments[end] == row.Segments[at] {
			end++
		}
		if row.Segments[at] == dataset.Padding {
			out.Free = end - at - 1 // the last position is always padding
			break
		}
		d := chatDocument{Tokens: end - at}
		for from := at; from < end; {
			inLoss := row.Weight(from) > 0
			to := from + 1
			for to < end && (row.Weight(to) > 0) == inLoss {
				to++
			}
			text, err := tok.Decode(row.Tokens[from:to])
			if err != nil {
				return out, err
			}
			d.Parts = append(d.Parts, chatPart{safetext.Valid(text), inLoss})
			from = to
		}
		out.Documents = append(out.Documents, d)
		at = end
	}
	return out, nil
}

func (s *chatListing) print(w io.Writer) {
	table(w, [][]string{
		{"documents", fmt.Sprint(s.Documents)}, {"tokens", fmt.Sprint(s.Tokens)},
		{"tokens in the loss", fmt.Sprint(s.Learned)},
		{"longest document", fmt.Sprint(s.Longest)},
		{"template", s.Template}, {"loss on", s.TrainOn}, {"tokenizer", s.Tokenizer.Name},
		{"vocabulary", fmt.Sprint(s.Tokenizer.VocabSize)}, {"sha256", s.SHA256},
	})
	if len(s.Rows) > 0 {
		fmt.Fprintf(w, "\nthe first of %d rows of %d tokens; text in the loss is between %s and "+
			"%s\n", s.RowCount, s.Length, lossBegin, lossEnd)
		if s.LeftOut > 0 {
			fmt.Fprintf(w, "%d documents are left out: none of their first %d tokens is in the loss\n",
				s.LeftOut, s.Length)
		}
	}
	for i, row := range s.Rows {
		for j, d := range row.Documents {
			text := ""
			for _, p := range d.Parts {
				if p.InLoss {
					text += lossBegin + p.Text + lossEnd
				} else {
					text += p.Text
				}
			}
			text = strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ")
			fmt.Fprintf(w, "\nrow %d, document %d, %d tokens:\n  %s\n", i+1, j+1, d.Tokens, text)
		}
		if row.Free > 0 {
			fmt.Fprintf(w, "\nrow %d: %d positions are unused\n", i+1, row.Free)
		}
	}
}
