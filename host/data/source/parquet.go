package source

import (
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// ReadParquet returns the rows of a Parquet file of size bytes as JSON objects with those of the
// given columns that exist. It is an error if none exists. Values are numbers, strings, and lists
// and groups of them. If there is an error, it is the last item.
func ReadParquet(r io.ReaderAt, size int64, columns []string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		p := &parquetFile{r: r, size: size, yield: yield}
		if err := p.read(columns); err != nil && err != errStop {
			yield(Row{}, err)
		}
	}
}

// plain converts bytes to strings, and Parquet's nested groups for lists to lists.
func plain(value any) any {
	switch v := value.(type) {
	case []byte:
		return string(v)
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plain(v[key])
		}
		list, ok := v["list"].([]any)
		if !ok || len(v) != 1 {
			return v
		}
		out := make([]any, len(list))
		for i, entry := range list {
			single, ok := entry.(map[string]any)
			if !ok || len(single) != 1 {
				return v
			}
			for _, element := range single {
				out[i] = element
			}
		}
		return out
	}
	return value
}

type parquetFile struct {
	r       io.ReaderAt
	size    int64
	yield   func(Row, error) bool
	unread  []string // columns
	number  int64    // of the row
	calling bool     // yield is running: a panic is not from the library
}

// errStop ends the reading of a file when the consumer stops.
var errStop = errors.New("stop")

// read reads all row groups. It recovers panics of the library, which damaged files can cause.
func (p *parquetFile) read(columns []string) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			if p.calling {
				panic(problem)
			}
			err = damagedParquet(fmt.Errorf("%v", problem))
		}
	}()
	if err := checkMagic(p.r, p.size); err != nil {
		return damagedParquet(err)
	}
	file, err := parquet.OpenFile(p.r, p.size,
		parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return damagedParquet(err)
	}
	selected := parquet.Group{}
	for _, field := range file.Schema().Fields() {
		if slices.Contains(columns, field.Name()) {
			selected[field.Name()] = field
		} else {
			p.unread = append(p.unread, field.Name())
		}
	}
	if len(selected) == 0 {
		named := columns
		if len(named) > 4 {
			named = append(named[:4:4], "…")
		}
		return fmt.Errorf("none of the columns %s exists; the file has %s",
			strings.Join(named, ", "), strings.Join(p.unread, ", "))
	}
	schema := parquet.NewSchema("rows", selected)
	conversion, err := parquet.Convert(schema, file.Schema())
	if err != nil {
		return damagedParquet(err)
	}
	for i, group := range file.RowGroups() {
		for _, path := range file.Schema().Columns() {
			if selected[path[0]] == nil {
				continue
			}
			leaf, ok := file.Schema().Lookup(path...)
			if !ok {
				return damagedParquet(fmt.Errorf("the column %s is not in the schema", strings.Join(path, ".")))
			}
			if err := p.checkPages(file, i, leaf); err != nil {
				return damagedParquet(fmt.Errorf("row group %d: %w", i, err))
			}
		}
		before := p.number
		if err := p.group(schema, parquet.ConvertRowGroup(group, conversion)); err != nil {
			return err
		}
		if n := p.number - before; n != group.NumRows() {
			return damagedParquet(fmt.Errorf("row group %d has %d rows, want the %d that it states",
				i, n, group.NumRows()))
		}
	}
	return nil
}

func (p *parquetFile) group(schema *parquet.Schema, group parquet.RowGroup) error {
	rows := group.Rows()
	defer rows.Close()
	batch := make([]parquet.Row, 16)
	for {
		n, err := rows.ReadRows(batch)
		for _, values := range batch[:n] {
			size := int64(0)
			for _, v := range values {
				size += valueCost + int64(len(v.Bytes()))
			}
			p.number++
			row, problem := Row{Unit: "row", Number: p.number, Unread: p.unread}, ""
			if size <= MaxRow {
				row.Text, problem = object(schema, values)
			}
			if size > MaxRow || len(row.Text) > MaxRow {
				problem = fmt.Sprintf("longer than %d MiB", MaxRow>>20)
			}
			if problem != "" {
				row.Text, row.Err = nil, &RowError{row.Unit, row.Number, problem, false}
			}
			p.calling = true
			more := p.yield(row, nil)
			p.calling = false
			if !more {
				return errStop
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return damagedParquet(err)
		case n == 0:
			return damagedParquet(io.ErrNoProgress)
		}
	}
}

// object returns a row as a JSON object, or the problem with it.
func object(schema *parquet.Schema, values parquet.Row) (text []byte, problem string) {
	var row any = map[string]any{}
	err := schema.Reconstruct(&row, values)
	if err == nil {
		columns := row.(map[string]any)
		for name := range columns {
			columns[name] = plain(columns[name])
		}
		text, err = jsonv2.Marshal(columns, jsonv2.Deterministic(true))
	}
	if _, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return nil, "a text is not UTF-8"
	} else if err != nil {
		return nil, err.Error()
	}
	return text, ""
}

func damagedParquet(err error) error { return &DamagedError{"Parquet", err} }
