package source

import (
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// ReadParquet returns the texts in a column of a Parquet file, the size bytes of r. An
// error, if any, comes last.
func ReadParquet(r io.ReaderAt, size int64, column string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		t := &table{parquetRows: newParquetRows(r, size, yield), name: column}
		if err := t.open(t.read); err != nil && err != errStop {
			yield(Row{}, err)
		}
	}
}

// table is a Parquet file that is being read.
type table struct {
	parquetRows
	name   string // of the column
	values []parquet.Value
}

// read reads all row groups.
func (t *table) read(file *parquet.File, pages *pages) error {
	column, err := t.column(file)
	if err != nil {
		return err
	}
	checked := newLeaf(column.Index(), column.MaxRepetitionLevel(), column.MaxDefinitionLevel(), column.Type())
	t.values = make([]parquet.Value, 256)
	for i, group := range file.RowGroups() {
		if err := pages.group(i, checked); err != nil {
			return err
		}
		if err := t.group(group.ColumnChunks()[column.Index()], group.NumRows()); err != nil {
			return err
		}
	}
	return nil
}

// column finds the column and makes sure that it holds texts.
func (t *table) column(file *parquet.File) (*parquet.Column, error) {
	c := file.Root().Column(t.name)
	var names []string
	for _, other := range file.Root().Columns() {
		names = append(names, other.Name())
	}
	if c == nil {
		return nil, fmt.Errorf("no column %q; there are %s", t.name, strings.Join(names, ", "))
	}
	problem := func(what string) error { return fmt.Errorf("column %q is %s, want strings", t.name, what) }
	switch {
	case !c.Leaf():
		return nil, problem("a group of columns")
	case c.Repeated():
		return nil, problem("a list")
	case c.Type().Kind() != parquet.ByteArray:
		return nil, problem("of the type " + c.Type().String())
	}
	if logical := c.Type().LogicalType(); logical != nil {
		switch logical.Value.(type) {
		case nil, *format.StringType, *format.JsonType, *format.EnumType:
		default:
			return nil, problem("of the type " + logical.String())
		}
	}
	return c, nil
}

// group reads the column's part of a row group.
func (t *table) group(chunk parquet.ColumnChunk, rows int64) error {
	pages := chunk.Pages()
	defer pages.Close()
	last := t.number + rows
	for {
		page, err := pages.ReadPage()
		if err == io.EOF {
			break
		}
		if err != nil {
			return damagedParquet(err)
		}
		err = t.page(page)
		parquet.Release(page)
		if err != nil {
			return err
		}
	}
	if t.number != last {
		return damagedParquet(fmt.Errorf("a row group has %d rows too many", t.number-last))
	}
	return nil
}

func (t *table) page(page parquet.Page) error {
	values := page.Values()
	for {
		n, err := values.ReadValues(t.values)
		for i := range n {
			if err := t.budget.spend(int64(len(t.values[i].ByteArray()))); err != nil {
				return damagedParquet(err)
			}
			if !t.value(&t.values[i]) {
				return errStop
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return damagedParquet(err)
		}
		if n == 0 {
			return damagedParquet(io.ErrNoProgress)
		}
	}
}

// value hands on one row; false: no more are wanted.
func (t *table) value(v *parquet.Value) bool {
	row, problem := t.next(), ""
	if v.IsNull() {
		problem = fmt.Sprintf("column %q is null, want a string", t.name)
	} else if row.Text = v.ByteArray(); len(row.Text) > MaxRow {
		problem = fmt.Sprintf("longer than %d MiB", MaxRow>>20)
	} else {
		problem = checkText(row.Text)
	}
	return t.hand(row, problem)
}
