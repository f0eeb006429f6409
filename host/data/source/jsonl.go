package source

import (
	"bufio"
	"bytes"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Extract replaces the row, which is a JSON object unless it has an error, by the text in a field.
func (r *Row) Extract(field string) {
	if r.Err != nil {
		return
	}
	text, problem, otherField := textOf(r.Text, field)
	if r.Text = text; problem != "" {
		r.Err = &RowError{r.Unit, r.Number, problem, otherField}
	}
}

// textOf returns the text in a field of a row, or the problem with the row. otherField is true if
// the row is an object without text in this field, so that another field may have the text.
func textOf(row []byte, field string) (text []byte, problem string, otherField bool) {
	var object map[string]jsontext.Value
	err := jsonv2.Unmarshal(row, &object)
	if _, ok := errors.AsType[*jsonv2.SemanticError](err); ok || err == nil && object == nil {
		return nil, fmt.Sprintf("not an object with the field %q", field), false
	} else if err != nil {
		return nil, plainjson.Explain(row, err).Error(), false
	}
	value, ok := object[field]
	if !ok {
		return nil, fmt.Sprintf("no field %q", field), true
	} else if value.Kind() != jsontext.KindString {
		return nil, fmt.Sprintf("field %q is not a string", field), true
	}
	if text, err = jsontext.AppendUnquote(nil, value); err != nil {
		return nil, err.Error(), false
	}
	switch {
	case bytes.IndexByte(text, 0) >= 0:
		problem = "the text has a zero byte"
	case !utf8.Valid(text):
		problem = "the text is not UTF-8"
	}
	return text, problem, false
}

// ReadObjects returns the lines of a JSONL file, except blank ones, without parsing them. An error
// in reading r, if any, comes last.
func ReadObjects(r io.Reader) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		in := bufio.NewReaderSize(r, 1<<20)
		var long []byte // a line that is longer than the buffer
		for number := int64(1); ; number++ {
			line, err := in.ReadSlice('\n')
			tooLong := false
			if err == bufio.ErrBufferFull {
				long = append(long[:0], line...)
				for err == bufio.ErrBufferFull {
					line, err = in.ReadSlice('\n')
					if tooLong = tooLong || len(long)+len(line) > MaxRow; !tooLong {
						long = append(long, line...)
					}
				}
				line = long
			}
			if err != nil && err != io.EOF {
				yield(Row{}, err)
				return
			}
			if number == 1 {
				line = bytes.TrimPrefix(line, []byte(UTF8Mark))
			}
			row := Row{Unit: "line", Number: number, Text: line}
			if tooLong {
				problem := fmt.Sprintf("longer than %d MiB", MaxRow>>20)
				row.Text, row.Err = nil, &RowError{row.Unit, number, problem, false}
			}
			if (tooLong || len(bytes.TrimSpace(line)) > 0) && !yield(row, nil) || err != nil {
				return
			}
		}
	}
}

// UTF8Mark is the byte order mark with which some programs begin UTF-8 files.
const UTF8Mark = "\xef\xbb\xbf"
