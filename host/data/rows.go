package data

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/internal/regular"
)

// RowOptions says which rows [ReadRows] reads.
type RowOptions struct {
	// Inputs, Include, Format and Stdin are those of [PrepareOptions].
	Inputs  []string
	Include []string
	Format  source.Format
	Stdin   io.Reader
	// Columns are the columns of Parquet files that are read, where they are there.
	Columns []string
}

// InputRow is a row of a file, as an object of JSON.
type InputRow struct {
	Path string
	Unit string // what the number counts: "line" or "row"
	source.Row
}

// ReadRows returns the rows of all files in order, for data whose rows are more than a text
// each. Files must be JSONL or Parquet by their names, or by the format that is given.
func ReadRows(o RowOptions) iter.Seq2[InputRow, error] {
	return func(yield func(InputRow, error) bool) {
		finder, err := newFinder(&PrepareOptions{Include: o.Include, Format: o.Format, Stdin: o.Stdin})
		var files []sourceFile
		if err == nil {
			finder.exclude = "" // nothing is written
			files, err = finder.find(o.Inputs)
		}
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("no file found in %q with include patterns %q%s", o.Inputs, o.Include, finder.leftOut)
		}
		if err != nil {
			yield(InputRow{}, err)
			return
		}
		for i := range files {
			unit := "line"
			if files[i].format == source.Parquet {
				unit = "row"
			}
			more, err := files[i].rows(o.Columns, func(r source.Row) bool { return yield(InputRow{files[i].path, unit, r}, nil) })
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
	in := f.stdin
	var file *os.File
	if in == nil {
		if file, err = regular.Open(f.path); err != nil {
			return false, err
		}
		defer file.Close()
		in = file
	}
	var list iter.Seq2[source.Row, error]
	switch f.format {
	case source.JSONL:
		text, err := source.Decompress(in, f.compress)
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
		return false, errors.New("neither JSONL nor Parquet by its name: --format says what it is")
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
