package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/internal/vfs"
)

// InputRow is a row of a file, as a JSON object.
type InputRow struct {
	Path string
	source.Row
}

// Location returns the path and the row number for messages.
func (r InputRow) Location() string {
	return fmt.Sprintf("%s: %s %d", r.Path, r.Unit, r.Number)
}

var errNoRows = errors.New("the name is not that of a JSONL or Parquet file: give --format")

func hasRows(f source.Format) bool { return f == source.JSONL || f == source.Parquet }

// RowFiles holds input files that consist of rows: JSONL or Parquet, according to their names or to
// the given format. Other files in folders are left out.
type RowFiles struct {
	columns           []string
	train, validation []sourceFile
	// LeftOut lists the files that were found but not used.
	LeftOut []LeftOut
}

// FindRows finds the input files of a dataset that uses more of a row than one text field. A file
// found in ValInputs is not used for Inputs. columns lists the columns to read from Parquet files,
// if they exist. Options for text fields have no effect.
func FindRows(o PrepareOptions, kind dataset.Kind, columns []string) (*RowFiles, error) {
	finder, err := newFinder(&o, kind)
	if err != nil {
		return nil, err
	}
	finder.rows = o.Format == "" // with a format, names do not matter
	find := func(inputs []string, restriction string) ([]sourceFile, error) {
		files, err := finder.find(inputs)
		if err == nil && len(inputs) > 0 && len(files) == 0 {
			err = fmt.Errorf("no file found in %q with include patterns %q%s%s",
				inputs, o.Include, restriction, finder.leftOut)
		}
		for _, f := range files {
			if !hasRows(f.format) {
				return nil, fmt.Errorf("%s: %w", f.path, errNoRows)
			}
		}
		return files, err
	}
	r := &RowFiles{columns: columns}
	if r.validation, err = find(o.ValInputs, ""); err != nil {
		return nil, err
	}
	restriction := ""
	if len(r.validation) > 0 {
		restriction = " that is not for validation"
	}
	if r.train, err = find(o.Inputs, restriction); err != nil {
		return nil, err
	}
	r.LeftOut = finder.leftOut.list()
	return r, nil
}

// Rows returns the rows of Inputs in order.
func (r *RowFiles) Rows() iter.Seq2[InputRow, error] { return r.rows(r.train) }

// ValRows returns the rows of ValInputs in order.
func (r *RowFiles) ValRows() iter.Seq2[InputRow, error] { return r.rows(r.validation) }

func (r *RowFiles) rows(files []sourceFile) iter.Seq2[InputRow, error] {
	return func(yield func(InputRow, error) bool) {
		for i := range files {
			f := &files[i]
			text, direct, close, err := f.open(func(in io.Reader) io.Reader { return in })
			more := true
			if err == nil {
				for row, rowErr := range f.rows(text, direct, r.columns) {
					if err = rowErr; err != nil {
						break
					}
					row.Text = bytes.Clone(row.Text)
					if more = yield(InputRow{f.path, row}, nil); !more {
						break
					}
				}
			}
			close()
			if err != nil {
				yield(InputRow{}, fmt.Errorf("%s: %w", f.path, withoutPath(err)))
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// rows returns the rows of an open file as JSON objects, with the given columns of Parquet.
func (f *sourceFile) rows(
	text io.Reader, direct vfs.File, columns []string,
) iter.Seq2[source.Row, error] {
	if f.format == source.Parquet {
		return source.ReadParquet(direct, f.size, columns)
	}
	return source.ReadObjects(text)
}
