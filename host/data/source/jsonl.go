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

// ReadObjects returns every line of JSONL as it is; lines of white space are skipped. It
// does not check whether a line is JSON. An error in reading r, if any, comes last.
func ReadObjects(r io.Reader) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		l := &lines{r: bufio.NewReaderSize(r, 1<<20)}
		begin, _ := l.r.Peek(sniffed) // an error comes back when it is read
		if err := checkJSONL(begin); err != nil {
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

const sniffed = 512

// otherFormats are what files begin with that are called JSONL by mistake.
var otherFormats = []struct{ begins, name string }{
	{"PAR1", "Parquet"}, {"\x1f\x8b", "gzip"}, {"\x28\xb5\x2f\xfd", "Zstandard"},
	{"\xfd7zXZ\x00", "xz"}, {"BZh", "bzip2"}, {"PK\x03\x04", "zip"},
	{"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"}, {"<", "HTML or XML"},
}

// checkJSONL refuses a file of another format by its first bytes, so that its lines do not count as
// bad rows.
func checkJSONL(begin []byte) error {
	text := bytes.TrimSpace(bytes.TrimPrefix(begin, []byte(UTF8Mark)))
	for _, other := range otherFormats {
		if bytes.HasPrefix(begin, []byte(other.begins)) || bytes.HasPrefix(text, []byte(other.begins)) {
			return &DamagedError{"JSONL", "this is " + other.name + ", whatever it is called"}
		}
	}
	return nil
}

// UTF8Mark is what some programs write before a text in UTF-8.
const UTF8Mark = "\xef\xbb\xbf"

var errLong = errors.New("a line is too long")

// lines cuts what it reads at line ends.
type lines struct {
	r      *bufio.Reader
	number int64
	long   []byte // a line that does not fit into r's buffer
}

// next returns the next line with something in it, errLong for one that is longer than
// MaxRow, or io.EOF.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := l.line()
		if err == io.EOF && len(line) > 0 {
			err = nil
		}
		if err != nil {
			return nil, err
		}
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte(UTF8Mark))
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
	}
}

func (l *lines) line() ([]byte, error) {
	l.number++
	part, err := l.r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return part, err
	}
	l.long = append(l.long[:0], part...)
	tooLong := false
	for err == bufio.ErrBufferFull {
		part, err = l.r.ReadSlice('\n')
		if tooLong = tooLong || len(l.long)+len(part) > MaxRow; !tooLong {
			l.long = append(l.long, part...)
		}
	}
	if tooLong && (err == nil || err == io.EOF) {
		return nil, errLong
	}
	return l.long, err
}

// objectParser takes one field out of an object.
type objectParser struct {
	field string
	in    bytes.Buffer
	dec   jsontext.Decoder
	text  []byte
	sound bool // the line is an object
}

// parse returns the field's text, or what is wrong with the line. The whole line is
// checked, whichever field is wanted.
func (p *objectParser) parse(line []byte) (text []byte, problem string) {
	p.in, p.sound = *bytes.NewBuffer(line), false
	p.dec.Reset(&p.in)
	if kind := p.dec.PeekKind(); kind == '[' {
		return nil, fmt.Sprintf("an array, want an object with the field %q; "+
			"jq -c '.[]' divides an array into lines", p.field)
	} else if kind != '{' && kind != 0 {
		return nil, fmt.Sprintf("%s, want an object with the field %q", kindName(kind), p.field)
	}
	found, wrong, err := p.object()
	if err == nil {
		if _, err = p.dec.ReadToken(); err == io.EOF {
			err = nil
		} else if err == nil {
			return nil, "more than one value in a line"
		}
	}
	p.sound = err == nil
	switch {
	case err != nil:
		return nil, syntaxProblem(line, err)
	case wrong != "":
		return nil, wrong
	case !found:
		return nil, fmt.Sprintf("no field %q", p.field)
	}
	return p.text, ""
}

// object reads an object and keeps the text of the field.
func (p *objectParser) object() (found bool, wrong string, err error) {
	if _, err := p.dec.ReadToken(); err != nil {
		return false, "", err
	}
	for p.dec.PeekKind() != '}' {
		name, err := p.dec.ReadToken()
		if err != nil {
			return false, "", err
		}
		if name.String() != p.field {
			if err := p.dec.SkipValue(); err != nil {
				return false, "", err
			}
			continue
		}
		kind := p.dec.PeekKind()
		value, err := p.dec.ReadValue()
		if err != nil {
			return false, "", err
		}
		found = true
		if kind != '"' {
			wrong = fmt.Sprintf("field %q is %s, want a string", p.field, kindName(kind))
			continue
		}
		if p.text, err = jsontext.AppendUnquote(p.text[:0], value); err != nil {
			return false, "", err
		}
	}
	_, err = p.dec.ReadToken()
	return found, wrong, err
}

// syntaxProblem says what is wrong with a line that is not JSON.
func syntaxProblem(line []byte, err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		if text := string(bytes.TrimSpace(line)); text == "{" {
			return "not JSON: the line ends too early; want an object in one line, as jq -c . writes it"
		}
		return "not JSON: the line ends too early"
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at := syntactic.ByteOffset
		hint := plainjson.NoNumber(line, at)
		return fmt.Sprintf("not JSON: at byte %d: %v%s", at+1, syntactic.Err, hint)
	}
	return "not JSON: " + err.Error()
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "not JSON"
}

// checkText says why bytes are no text, "" if they are.
func checkText(text []byte) string {
	switch {
	case bytes.IndexByte(text, 0) >= 0:
		return "the text has a zero byte"
	case !utf8.Valid(text):
		return "the text is not UTF-8"
	}
	return ""
}
