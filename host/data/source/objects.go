package source

import (
	"bufio"
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
)

// ReadObjects returns every line of JSONL as it is; lines of white space are skipped. It
// does not check whether a line is JSON. An error in reading r, if any, comes last.
func ReadObjects(r io.Reader) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		l := &lines{r: bufio.NewReaderSize(r, 1<<20)}
		begin, _ := l.r.Peek(sniffed) // an error comes back when it is read
		if err := otherwise("JSONL", begin); err != nil {
			yield(Row{}, err)
			return
		}
		for {
			line, err := l.next()
			row := Row{Number: l.number, Text: line}
			switch {
			case err == io.EOF:
				return
			case errors.Is(err, errLong):
				problem := fmt.Sprintf("longer than %d MiB", MaxRow>>20)
				row = Row{Number: l.number, Err: &RowError{"line", l.number, problem, false}}
			case err != nil:
				yield(Row{}, err)
				return
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// ReadParquetObjects returns the rows of a Parquet file, the size bytes of r, as JSON
// objects with those of the columns that exist; at least one must. The values are
// numbers, texts, and lists and groups of them. An error, if any, comes last.
func ReadParquetObjects(r io.ReaderAt, size int64, columns []string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		o := &objects{parquetRows: newParquetRows(r, size, yield)}
		if err := o.open(func(file *parquet.File, pages *pages) error { return o.read(file, pages, columns) }); err != nil && err != errStop {
			yield(Row{}, err)
		}
	}
}

// objects is a Parquet file whose rows are read as JSON.
type objects struct {
	parquetRows
	unread []string // columns
}

// read reads all row groups.
func (o *objects) read(file *parquet.File, pages *pages, columns []string) error {
	schema, leaves, err := o.projection(file, columns)
	if err != nil {
		return err
	}
	conversion, err := parquet.Convert(schema, file.Schema())
	if err != nil {
		return damagedParquet(err)
	}
	for i, group := range file.RowGroups() {
		for _, l := range leaves {
			if err := pages.group(i, l); err != nil {
				return err
			}
		}
		if err := o.group(schema, parquet.ConvertRowGroup(group, conversion)); err != nil {
			return err
		}
	}
	return nil
}

// mostNamed is how many missing columns an error names.
const mostNamed = 4

// projection is the schema of the columns that are read, and the columns of values in them.
func (o *objects) projection(file *parquet.File, columns []string) (*parquet.Schema, []leaf, error) {
	selected := parquet.Group{}
	var names []string
	for _, c := range file.Root().Columns() {
		names = append(names, c.Name())
	}
	for _, field := range file.Schema().Fields() {
		if name := field.Name(); slices.Contains(columns, name) {
			selected[name] = field
		} else {
			o.unread = append(o.unread, name)
		}
	}
	if len(selected) == 0 {
		if len(columns) > mostNamed {
			columns = append(columns[:mostNamed:mostNamed], "…")
		}
		return nil, nil, fmt.Errorf("none of the columns %s; there are %s", strings.Join(columns, ", "), strings.Join(names, ", "))
	}
	var leaves []leaf
	for _, path := range file.Schema().Columns() {
		if _, ok := selected[path[0]]; !ok {
			continue
		}
		found, ok := file.Schema().Lookup(path...)
		if !ok {
			return nil, nil, damagedParquet(fmt.Errorf("the column %s is not in the schema", strings.Join(path, ".")))
		}
		leaves = append(leaves, newLeaf(found.ColumnIndex, found.MaxRepetitionLevel, found.MaxDefinitionLevel, found.Node.Type()))
	}
	return parquet.NewSchema("rows", selected), leaves, nil
}

// group reads the rows of a row group.
func (o *objects) group(schema *parquet.Schema, group parquet.RowGroup) error {
	rows := group.Rows()
	defer rows.Close()
	batch := make([]parquet.Row, 16)
	for {
		n, err := rows.ReadRows(batch)
		for _, row := range batch[:n] {
			size := int64(0)
			for _, v := range row {
				size += valueCost + int64(len(v.Bytes()))
			}
			if err := o.budget.spend(size); err != nil {
				return damagedParquet(err)
			}
			if !o.row(schema, row, size) {
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

// row hands on one row; false: no more are wanted.
func (o *objects) row(schema *parquet.Schema, values parquet.Row, size int64) bool {
	row, problem := o.next(), ""
	row.Unread = o.unread
	var object any = map[string]any{}
	if size > MaxRow {
		problem = fmt.Sprintf("longer than %d MiB", MaxRow>>20)
	} else if err := schema.Reconstruct(&object, values); err != nil {
		problem = err.Error()
	} else if invalid := plainColumns(object.(map[string]any)); invalid != "" {
		problem = fmt.Sprintf("column %q: the text is not UTF-8", invalid)
	} else if row.Text, err = json.Marshal(object); err != nil {
		problem = err.Error()
	} else if len(row.Text) > MaxRow {
		problem = fmt.Sprintf("longer than %d MiB", MaxRow>>20)
	}
	return o.hand(row, problem, false)
}

// plainColumns makes the values of a row [plain]. It returns the first column that has a text that
// is not UTF-8; "": none.
func plainColumns(row map[string]any) (invalid string) {
	for _, name := range slices.Sorted(maps.Keys(row)) {
		value, valid := plain(row[name])
		if row[name] = value; !valid {
			return name
		}
	}
	return ""
}

// plain makes texts of bytes, and lists of what Parquet writes as groups named list and
// element; valid reports whether the texts are UTF-8, as those of JSON must be.
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
		return unlisted(v), valid
	}
	return value, valid
}

// unlisted is the list that a group stands for, or the group.
func unlisted(group map[string]any) any {
	list, ok := group["list"].([]any)
	if !ok || len(group) != 1 {
		return group
	}
	out := make([]any, len(list))
	for i, entry := range list {
		single, ok := entry.(map[string]any)
		if !ok || len(single) != 1 {
			return group
		}
		for _, element := range single {
			out[i] = element
		}
	}
	return out
}
