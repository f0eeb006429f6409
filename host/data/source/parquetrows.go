package source

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

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
		return damagedParquet(err)
	}
	file, err := parquet.OpenFile(p.r, p.size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return damagedParquet(err)
	}
	pages := newPages(file, p.r, p.size)
	defer pages.close()
	return read(file, pages)
}

// next begins a row.
func (p *parquetRows) next() Row {
	p.number++
	return Row{Number: p.number}
}

// hand hands on a row, or what is wrong with it; false: no more are wanted.
func (p *parquetRows) hand(row Row, problem string) bool {
	if problem != "" {
		row = Row{Number: p.number, Err: &RowError{"row", p.number, problem}}
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
