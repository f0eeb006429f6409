package data

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/cage-qat/cage/internal/vfs"

	"github.com/cage-qat/cage/host/data/source"
)

// RowOptions says which rows [FindRows] finds. All fields except Owns and Columns are as in
// [PrepareOptions].
type RowOptions struct {
	Inputs, ValInputs []string
	Include           []string
	Format            source.Format
	Stdin             io.Reader
	// Out is the folder that is written to, and therefore not read; empty means none.
	Out string
	// Owns reports whether a file of that name is written there.
	Owns func(name string) bool
	// Columns lists the columns of Parquet files to read, if present.
	Columns []string
}

// InputRow is a row of a file, as a JSON object.
type InputRow struct {
	Path string
	Unit string // what the number counts: "line" or "row"
	source.Row
}

// errNoRows says of a file that it is of a format without rows.
var errNoRows = errors.New("neither JSONL nor Parquet by its name: --format says what it is")

func hasRows(f source.Format) bool { return f == source.JSONL || f == source.Parquet }

// RowFiles are files that have rows. They must be JSONL or Parquet, by their names or by the given
// format; others in folders are left out.
type RowFiles struct {
	columns           []string
	train, validation []sourceFile
	// LeftOut lists the files that were found but not used.
	LeftOut []LeftOut
}

// FindRows finds the data files, for rows that consist of more than a text. A file that is found
// among ValInputs is not used for Inputs.
func FindRows(o RowOptions) (*RowFiles, error) {
	finder, err := newFinder(&PrepareOptions{Include: o.Include, Format: o.Format, Stdin: o.Stdin, Out: o.Out})
	if err != nil {
		return nil, err
	}
	finder.own = o.Owns
	finder.rows = o.Format == "" // otherwise no name tells what a file is
	find := func(inputs []string, apart string) ([]sourceFile, error) {
		files, err := finder.find(inputs)
		if err == nil && len(inputs) > 0 && len(files) == 0 {
			err = fmt.Errorf("no file found in %q with include patterns %q%s%s", inputs, o.Include, apart, finder.leftOut)
		}
		for _, f := range files {
			if !hasRows(f.format) {
				return nil, fmt.Errorf("%s: %w", f.path, errNoRows)
			}
		}
		return files, err
	}
	r := &RowFiles{columns: o.Columns}
	if r.validation, err = find(o.ValInputs, ""); err != nil {
		return nil, err
	}
	apart := ""
	if len(r.validation) > 0 {
		apart = " that is not for validation"
	}
	if r.train, err = find(o.Inputs, apart); err != nil {
		return nil, err
	}
	r.LeftOut = finder.leftOut.list()
	return r, nil
}

// ReadRows finds files and returns the rows of Inputs.
func ReadRows(o RowOptions) iter.Seq2[InputRow, error] {
	return func(yield func(InputRow, error) bool) {
		files, err := FindRows(o)
		if err != nil {
			yield(InputRow{}, err)
			return
		}
		files.Rows()(yield)
	}
}

// Rows returns the rows of Inputs in order.
func (r *RowFiles) Rows() iter.Seq2[InputRow, error] { return r.rows(r.train) }

// ValRows returns the rows of ValInputs in order.
func (r *RowFiles) ValRows() iter.Seq2[InputRow, error] { return r.rows(r.validation) }

func (r *RowFiles) rows(files []sourceFile) iter.Seq2[InputRow, error] {
	return func(yield func(InputRow, error) bool) {
		for i := range files {
			unit := "line"
			if files[i].format == source.Parquet {
				unit = "row"
			}
			more, err := files[i].rows(r.columns, func(row source.Row) bool { return yield(InputRow{files[i].path, unit, row}, nil) })
			if err != nil {
				yield(InputRow{}, fmt.Errorf("%s: %w", files[i].path, withoutPath(err)))
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// rows reads the rows of a file; more is false when no more are wanted.
func (f *sourceFile) rows(columns []string, use func(source.Row) bool) (more bool, err error) {
	in, compress := f.stdin, f.compress
	var file *os.File
	if in == nil {
		if file, err = vfs.OpenRegular(f.path); err != nil {
			return false, err
		}
		defer file.Close()
		in = file
	} else if in, compress, err = standardInput(in); err != nil {
		return false, err
	}
	var list iter.Seq2[source.Row, error]
	switch f.format {
	case source.JSONL:
		text, err := source.Decompress(in, compress)
		if err != nil {
			return false, err
		}
		defer text.Close()
		list = source.ReadObjects(text)
	case source.Parquet:
		if file == nil || f.compress != source.None {
			return false, errors.New("a Parquet file is read from its end: give it as a file that is not compressed as a whole")
		}
		stat, err := file.Stat()
		if err != nil {
			return false, err
		}
		list = source.ReadParquetObjects(file, stat.Size(), columns)
	default:
		return false, errNoRows
	}
	for row, err := range list {
		if err != nil {
			return false, err
		}
		if !use(row) {
			return false, nil
		}
	}
	return true, nil
}
