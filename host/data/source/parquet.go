package source

import (
	"errors"
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
	return t.hand(row, problem, v.IsNull())
}

// parquetRows is a Parquet file whose rows are handed on.
type parquetRows struct {
	r       io.ReaderAt
	size    int64
	yield   func(Row, error) bool
	number  int64  // of the row
	budget  budget // of what the rows hold
	calling bool   // yield runs: a panic is not the library's
}

func newParquetRows(r io.ReaderAt, size int64, yield func(Row, error) bool) parquetRows {
	return parquetRows{r: r, size: size, yield: yield, budget: budget{size: size}}
}

// errStop ends the reading of a file whose caller wants no more rows.
var errStop = errors.New("stop")

// open opens the file for read. The library panics over some damaged files.
func (p *parquetRows) open(read func(*parquet.File, *pages) error) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			if p.calling {
				panic(problem)
			}
			err = damagedParquet(fmt.Errorf("%v", problem))
		}
	}()
	if err := checkFooter(p.r, p.size); err != nil {
		begin := make([]byte, min(sniffed, p.size))
		if _, readErr := p.r.ReadAt(begin, 0); readErr == nil || readErr == io.EOF {
			if err := otherwise(string(KindParquet), begin); err != nil {
				return err
			}
		}
		return damagedParquet(err)
	}
	file, err := parquet.OpenFile(p.r, p.size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return damagedParquet(err)
	}
	pages := &pages{file: file, r: p.r, budget: budget{size: p.size}}
	defer pages.close()
	return read(file, pages)
}

// next begins a row.
func (p *parquetRows) next() Row {
	p.number++
	return Row{Number: p.number}
}

// hand hands on a row, or what is wrong with it; false: no more are wanted.
// field is that of [RowError].
func (p *parquetRows) hand(row Row, problem string, field bool) bool {
	if problem != "" {
		row = Row{Number: p.number, Err: &RowError{"row", p.number, problem, field}}
	}
	p.calling = true
	more := p.yield(row, nil)
	p.calling = false
	return more
}

func damagedParquet(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &DamagedError{"Parquet", "the data end too early: the file is truncated"}
	}
	return &DamagedError{"Parquet", "damaged, or no Parquet file: " + err.Error()}
}
