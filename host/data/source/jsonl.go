package source

import (
	"bufio"
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/plainjson"
)

// ReadJSONL returns the text in a field of every line; lines of white space are skipped.
// An error in reading r, if any, comes last.
func ReadJSONL(r io.Reader, field string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		p := &objectParser{field: field}
		for row, err := range ReadObjects(r) {
			if err == nil && row.Err == nil {
				text, problem := p.parse(row.Text)
				field := p.sound && problem != ""
				if problem == "" {
					problem = checkText(text)
				}
				if row.Text = text; problem != "" {
					row.Err = &RowError{"line", row.Number, problem, field}
				}
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// ReadObjects returns the unparsed lines of JSONL; lines of white space are skipped. It does not
// check whether a line is JSON. An error in reading r, if any, comes last.
func ReadObjects(r io.Reader) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		in := bufio.NewReaderSize(r, 1<<20)
		begin, _ := in.Peek(sniffed) // a read error recurs later
		text := bytes.TrimSpace(bytes.TrimPrefix(begin, []byte(UTF8Mark)))
		for _, other := range otherFormats {
			if bytes.HasPrefix(begin, []byte(other.begins)) || bytes.HasPrefix(text, []byte(other.begins)) {
				yield(Row{}, &DamagedError{"JSONL", "this is " + other.name + ", whatever it is called"})
				return
			}
		}
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
			row := Row{Number: number, Text: line}
			if tooLong {
				problem := fmt.Sprintf("longer than %d MiB", MaxRow>>20)
				row = Row{Number: number, Err: &RowError{"line", number, problem, false}}
			}
			if (tooLong || len(bytes.TrimSpace(line)) > 0) && !yield(row, nil) || err != nil {
				return
			}
		}
	}
}

// UTF8Mark is the byte order mark, with which some programs begin UTF-8 texts.
const UTF8Mark = "\xef\xbb\xbf"

const sniffed = 512

// otherFormats are the beginnings of files misnamed as JSONL, all of whose lines would count as bad
// rows.
var otherFormats = []struct{ begins, name string }{
	{"PAR1", "Parquet"}, {"\x1f\x8b", "gzip"}, {"\x28\xb5\x2f\xfd", "Zstandard"},
	{"\xfd7zXZ\x00", "xz"}, {"BZh", "bzip2"}, {"PK\x03\x04", "zip"},
	{"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"}, {"<", "HTML or XML"},
}

// objectParser extracts one field of an object.
type objectParser struct {
	field string
	in    bytes.Buffer
	dec   jsontext.Decoder
	text  []byte
	sound bool // the line is an object
}

// parse returns the field's text, or the problem of the line. The whole line is checked, whichever
// field is requested.
func (p *objectParser) parse(line []byte) (text []byte, problem string) {
	p.in, p.sound = *bytes.NewBuffer(line), false
	p.dec.Reset(&p.in)
	if kind := p.dec.PeekKind(); kind == '[' {
		return nil, fmt.Sprintf("an array, want an object with the field %q; "+
			"jq -c '.[]' divides an array into lines", p.field)
	} else if kind != '{' && kind != 0 {
		return nil, fmt.Sprintf("%s, want an object with the field %q", kindName(kind), p.field)
	}
	problem = fmt.Sprintf("no field %q", p.field)
	_, err := p.dec.ReadToken()
	for err == nil && p.dec.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = p.dec.ReadToken(); err != nil {
			break
		}
		if name.String() != p.field {
			err = p.dec.SkipValue()
			continue
		}
		kind := p.dec.PeekKind()
		var value jsontext.Value
		if value, err = p.dec.ReadValue(); err != nil {
			break
		}
		if problem = ""; kind != '"' {
			problem = fmt.Sprintf("field %q is %s, want a string", p.field, kindName(kind))
			continue
		}
		p.text, err = jsontext.AppendUnquote(p.text[:0], value)
	}
	if err == nil {
		_, err = p.dec.ReadToken() // the end of the object
	}
	if err == nil {
		if _, err = p.dec.ReadToken(); err == nil {
			return nil, "more than one value in a line"
		}
		if err == io.EOF {
			p.sound = true
			return p.text, problem
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		problem = "not JSON: the line ends too early"
		if text := string(bytes.TrimSpace(line)); text == "{" {
			problem += "; want an object in one line, as jq -c . writes it"
		}
		return nil, problem
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at := syntactic.ByteOffset
		hint := plainjson.NoNumber(line, at)
		return nil, fmt.Sprintf("not JSON: at byte %d: %v%s", at+1, syntactic.Err, hint)
	}
	return nil, "not JSON: " + err.Error()
}

func kindName(kind jsontext.Kind) string {
	return map[jsontext.Kind]string{
		'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number",
		'{': "an object", '[': "an array",
	}[kind]
}

// checkText returns why bytes are not text, "" if they are.
func checkText(text []byte) string {
	switch {
	case bytes.IndexByte(text, 0) >= 0:
		return "the text has a zero byte"
	case !utf8.Valid(text):
		return "the text is not UTF-8"
	}
	return ""
}
