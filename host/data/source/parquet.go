package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// ReadParquet returns the texts in a column of a Parquet file, the size bytes of r. An error, if
// any, comes last.
func ReadParquet(r io.ReaderAt, size int64, column string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		p := &parquetFile{r: r, size: size, yield: yield}
		p.row = func(_ *parquet.Schema, values parquet.Row) (text []byte, problem string) {
			if len(values) != 1 || values[0].IsNull() {
				return nil, fmt.Sprintf("column %q is null, want a string", column)
			}
			text = values[0].ByteArray()
			return text, checkText(text)
		}
		p.run([]string{column}, func(file *parquet.File) error { return checkColumn(file, column) })
	}
}

func checkColumn(file *parquet.File, name string) error {
	c := file.Root().Column(name)
	if c == nil {
		return fmt.Errorf("no column %q; there are %s", name, columnNames(file))
	}
	strings := c.Leaf() && !c.Repeated() && c.Type().Kind() == parquet.ByteArray
	if logical := c.Type().LogicalType(); strings && logical != nil {
		switch logical.Value.(type) {
		case nil, *format.StringType, *format.JsonType, *format.EnumType:
		default:
			strings = false
		}
	}
	if !strings {
		return fmt.Errorf("column %q has the type %s, want one string in each row", name, c.Type())
	}
	return nil
}

func columnNames(file *parquet.File) string {
	var names []string
	for _, c := range file.Root().Columns() {
		names = append(names, c.Name())
	}
	return strings.Join(names, ", ")
}

// ReadParquetObjects returns the rows of a Parquet file, the size bytes of r, as JSON objects with
// those of the columns that exist; at least one must. The values are numbers, texts, and lists and
// groups of them. An error, if any, comes last.
func ReadParquetObjects(r io.ReaderAt, size int64, columns []string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		p := &parquetFile{r: r, size: size, yield: yield}
		p.row = func(schema *parquet.Schema, values parquet.Row) (text []byte, problem string) {
			var row any = map[string]any{}
			err := schema.Reconstruct(&row, values)
			if err != nil {
				return nil, err.Error()
			}
			object := row.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(object)) {
				value, valid := plain(object[name])
				if object[name] = value; !valid {
					return nil, fmt.Sprintf("column %q: the text is not UTF-8", name)
				}
			}
			if text, err = json.Marshal(object); err != nil {
				return nil, err.Error()
			}
			return text, ""
		}
		p.run(columns, func(file *parquet.File) error {
			for _, field := range file.Schema().Fields() {
				if !slices.Contains(columns, field.Name()) {
					p.unread = append(p.unread, field.Name())
				}
			}
			if len(p.unread) < len(file.Schema().Fields()) {
				return nil
			}
			named := columns
			if len(named) > 4 {
				named = append(named[:4:4], "…")
			}
			return fmt.Errorf("none of the columns %s; there are %s",
				strings.Join(named, ", "), columnNames(file))
		})
	}
}

// plain converts bytes to texts, and Parquet's groups named list and element to lists; valid
// reports whether the texts are UTF-8, as JSON requires.
func plain(value any) (out any, valid bool) {
	valid = true
	of := func(part any) any {
		part, ok := plain(part)
		valid = valid && ok
		return part
	}
	switch v := value.(type) {
	case []byte:
		return string(v), utf8.Valid(v)
	case string:
		return v, utf8.ValidString(v)
	case []any:
		for i := range v {
			v[i] = of(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = of(v[key])
		}
		list, ok := v["list"].([]any)
		if !ok || len(v) != 1 {
			return v, valid
		}
		out := make([]any, len(list))
		for i, entry := range list {
			single, ok := entry.(map[string]any)
			if !ok || len(single) != 1 {
				return v, valid
			}
			for _, element := range single {
				out[i] = element
			}
		}
		return out, valid
	}
	return value, valid
}

type parquetFile struct {
	r       io.ReaderAt
	size    int64
	yield   func(Row, error) bool
	row     func(*parquet.Schema, parquet.Row) (text []byte, problem string)
	unread  []string // columns
	number  int64    // of the row
	calling bool     // yield is running: a panic is not the library's
}

// errStop ends the reading of a file when the consumer stops.
var errStop = errors.New("stop")

func (p *parquetFile) run(columns []string, check func(*parquet.File) error) {
	if err := p.read(columns, check); err != nil && err != errStop {
		p.yield(Row{}, err)
	}
}

// read reads all row groups. The library panics on some damaged files.
func (p *parquetFile) read(columns []string, check func(*parquet.File) error) (err error) {
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
	if err := check(file); err != nil {
		return err
	}
	selected := parquet.Group{}
	for _, field := range file.Schema().Fields() {
		if slices.Contains(columns, field.Name()) {
			selected[field.Name()] = field
		}
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
		last := p.number + group.NumRows()
		if err := p.group(schema, parquet.ConvertRowGroup(group, conversion)); err != nil {
			return err
		}
		if p.number != last {
			return damagedParquet(fmt.Errorf("a row group has %d rows too many", p.number-last))
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
			row, problem := Row{Number: p.number, Unread: p.unread}, ""
			if size <= MaxRow {
				row.Text, problem = p.row(schema, values)
			}
			if size > MaxRow || len(row.Text) > MaxRow {
				problem = fmt.Sprintf("longer than %d MiB", MaxRow>>20)
			}
			if problem != "" {
				null := len(values) == 1 && values[0].IsNull()
				row = Row{Number: p.number, Err: &RowError{"row", p.number, problem, null}}
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

func damagedParquet(err error) error { return &DamagedError{"Parquet", err} }
