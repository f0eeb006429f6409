package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data/arrange"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
)

// chatShown is a chat file as printed.
type chatShown struct {
	dataset.Header
	Length   int       `json:"row_length"` // in tokens
	RowCount int64     `json:"row_count"`
	LeftOut  int       `json:"left_out"` // documents with nothing to learn in the length of a row
	Rows     []chatRow `json:"rows"`     // the first ones
}

// chatRow is a row of documents.
type chatRow struct {
	Documents []chatDocument `json:"documents"`
	Free      int            `json:"free"` // places that no document fills
}

// chatDocument is a document in a row, as text.
type chatDocument struct {
	Tokens int        `json:"tokens"`
	Parts  []chatPart `json:"parts"`
}

// chatPart is a stretch of a document of which all or nothing is learned.
type chatPart struct {
	Text    string `json:"text"`
	Learned bool   `json:"learned"`
}

// The marks around what is learned.
const (
	learnedBegin = "⟦"
	learnedEnd   = "⟧"
)

// showFlags say which rows `data show` prints of a chat file.
type showFlags struct{ count, length int }

func (f *showFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.count, "rows", 2, "chat file: how many rows to print")
	cmd.Flags().IntVar(&f.length, "length", 0, "chat file: tokens of a row; 0: those of the longest conversation, at most 2048")
}

// defaultLength bounds the rows that are shown, in tokens.
const defaultLength = 2048

// showChat describes a chat file and prints its first rows.
func showChat(f *dataset.File, flags showFlags) (*answer, error) {
	if flags.length == 0 {
		flags.length = int(min(f.Header().Longest, defaultLength))
	}
	shown := chatShown{Header: f.Header(), Length: flags.length}
	if flags.count > 0 && f.Documents() > 0 {
		if err := shown.read(f, flags.count); err != nil {
			return nil, err
		}
	}
	return &answer{shown, shown.print}, nil
}

// read lays out the documents as they stand in the file, and reads the first rows.
func (s *chatShown) read(f *dataset.File, count int) error {
	tok, err := tokenizer.Reopen(filepath.Dir(f.Path()), f.Header().Tokenizer)
	if err != nil {
		return err
	}
	sampler, err := arrange.NewRows(f, arrange.RowsConfig{Length: s.Length, Batch: 1, Epochs: 1, Packing: arrange.FirstFit, InOrder: true})
	if err != nil {
		return err
	}
	s.RowCount, s.LeftOut = sampler.Steps(), sampler.LeftOut()
	row := arrange.NewRow(s.Length)
	for i := range min(int64(count), s.RowCount) {
		if _, err := sampler.At(i, 0, []arrange.Row{row}); err != nil {
			return err
		}
		texts, err := readRow(row, tok)
		if err != nil {
			return err
		}
		s.Rows = append(s.Rows, texts)
	}
	return nil
}

// readRow turns a row into texts.
func readRow(row arrange.Row, tok tokenizer.Tokenizer) (chatRow, error) {
	var out chatRow
	for at := 0; at < len(row.Tokens); {
		end := at + 1
		for end < len(row.Tokens) && row.Segments[end] == row.Segments[at] {
			end++
		}
		if row.Segments[at] == arrange.NoDocument {
			out.Free = end - at
			break
		}
		d := chatDocument{Tokens: end - at}
		for from := at; from < end; {
			// The weight at a place is that of the token behind it.
			learned := from > at && row.Weights[from-1] > 0
			to := from + 1
			for to < end && (row.Weights[to-1] > 0) == learned {
				to++
			}
			text, err := tok.Decode(row.Tokens[from:to])
			if err != nil {
				return out, err
			}
			d.Parts = append(d.Parts, chatPart{strings.ToValidUTF8(text, "\uFFFD"), learned})
			from = to
		}
		out.Documents = append(out.Documents, d)
		at = end
	}
	return out, nil
}

func (s *chatShown) print(w io.Writer) {
	table(w, [][]string{
		{"conversations", fmt.Sprint(s.Documents)}, {"tokens", fmt.Sprint(s.Tokens)}, {"learned", fmt.Sprint(s.Learned)}, {"longest", fmt.Sprint(s.Longest)},
		{"template", s.Template}, {"loss on", s.TrainOn}, {"tokenizer", s.Tokenizer.Name}, {"vocabulary", fmt.Sprint(s.Tokenizer.VocabSize)}, {"sha256", s.SHA256},
	})
	if len(s.Rows) > 0 {
		fmt.Fprintf(w, "\nrows of %d tokens: %d, of which the first; %s learned %s\n", s.Length, s.RowCount, learnedBegin, learnedEnd)
		if s.LeftOut > 0 {
			fmt.Fprintf(w, "%d conversations have nothing to learn in that length, and are left out\n", s.LeftOut)
		}
	}
	for i, row := range s.Rows {
		for j, d := range row.Documents {
			fmt.Fprintf(w, "\nrow %d, conversation %d, %d tokens:\n%s\n", i+1, j+1, d.Tokens, d.marked())
		}
		if row.Free > 0 {
			fmt.Fprintf(w, "\nrow %d: %d places are free\n", i+1, row.Free)
		}
	}
}

// marked is the text of a document, indented, with marks around what is learned.
func (d chatDocument) marked() string {
	var out strings.Builder
	for _, p := range d.Parts {
		if p.Learned {
			out.WriteString(learnedBegin + p.Text + learnedEnd)
		} else {
			out.WriteString(p.Text)
		}
	}
	return "  " + strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "\n", "\n  ")
}
