package scaling

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"

	"github.com/cage-qat/cage/internal/plainjson"
)

// maxFile bounds a file of points, in bytes.
const maxFile = 64 << 20

// Problem is one mistake in a file of points.
type Problem struct {
	File string
	Line int // from 1; 0: no particular line
	Msg  string
}

// Error implements the error interface.
func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Msg
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Msg)
}

// Problems lists all mistakes in a file, in order. Its text has one line for each, but
// for no more than 20.
type Problems []*Problem

// Error implements the error interface.
func (ps Problems) Error() string {
	const most = 20
	var lines []string
	for i, p := range ps {
		if i == most {
			lines = append(lines, fmt.Sprintf("%s: and %d more", p.File, len(ps)-most))
			break
		}
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

// ReadFile reads points from a file. Its extension determines the format: .csv with a
// heading, or .json with an array of objects. Both have the columns or keys n, d, method
// and bits, and either loss in nats per token or ppl, its exponential; no others. If the
// content is wrong, the error is [Problems].
func ReadFile(path string) ([]Point, error) {
	var parse func(path string, text []byte) ([]Point, error)
	switch strings.ToLower(filepath.Ext(path)) {
	case ".csv":
		parse = ParseCSV
	case ".json":
		parse = ParseJSON
	default:
		if _, err := os.Stat(path); err != nil {
			return nil, &Problem{File: path, Msg: reason(err)}
		}
		return nil, &Problem{File: path, Msg: "unknown file type; want a .csv or .json file, or a run directory"}
	}
	f, err := vfs.OpenRegular(path)
	if err != nil {
		return nil, &Problem{File: path, Msg: reason(err)}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, &Problem{File: path, Msg: reason(err)}
	}
	if len(text) > maxFile {
		return nil, &Problem{File: path, Msg: fmt.Sprintf("larger than %d bytes", maxFile)}
	}
	return parse(path, bytes.TrimPrefix(text, []byte("\ufeff")))
}

// reason is a cause without the path, which the message names already.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// columns of a file of points, in the order in which messages name them; the first four
// must be there.
var columns = []string{"n", "d", "method", "bits", "loss", "ppl"}

const wantedColumns = "want n, d, method, bits, and loss or ppl"

// pointReader collects the points of a file and what is wrong with it.
type pointReader struct {
	file     string
	points   []Point
	problems Problems
}

func (r *pointReader) fail(line int, format string, args ...any) {
	r.problems = append(r.problems, &Problem{r.file, line, fmt.Sprintf(format, args...)})
}

// result is what was read; none says that there are no points.
func (r *pointReader) result(none string) ([]Point, error) {
	if r.problems == nil && r.points == nil {
		r.fail(0, "%s", none)
	}
	if r.problems != nil {
		return nil, r.problems
	}
	return r.points, nil
}

// missing reports the required columns that are not there. what is written before their
// names.
func (r *pointReader) missing(line int, what string, has func(name string) bool) {
	for _, name := range columns[:4] {
		if !has(name) {
			r.fail(line, "no %s%s; %s", what, name, wantedColumns)
		}
	}
}

// add takes a point, unless something is wrong with it.
func (r *pointReader) add(line int, p Point) {
	p.Source = fmt.Sprintf("%s:%d", r.file, line)
	if wrong := p.check(); wrong != "" {
		r.fail(line, "%s", wrong)
		return
	}
	r.points = append(r.points, p)
}

// set sets a column that holds a number.
func (p *Point) set(column string, x float64) {
	switch column {
	case "n":
		p.N = x
	case "d":
		p.D = x
	case "bits":
		p.Bits = x
	case "loss":
		p.Loss = x
	case "ppl":
		p.Loss = math.Log(x)
	}
}

// ParseCSV parses points from CSV. The first line names the columns, in any order; lines
// that begin with # are comments. path is the name used in messages.
func ParseCSV(path string, text []byte) ([]Point, error) {
	in := csv.NewReader(bytes.NewReader(text))
	in.Comment, in.TrimLeadingSpace, in.FieldsPerRecord = '#', true, -1
	p := csvParser{pointReader: pointReader{file: path}}
	for {
		fields, err := in.Read()
		switch {
		case errors.Is(err, io.EOF) && p.columns == nil:
			p.fail(0, "no lines; the first must name the columns: "+wantedColumns)
			return nil, p.problems
		case errors.Is(err, io.EOF):
			return p.result("no points below the heading")
		case err != nil:
			line := 0
			if e, ok := errors.AsType[*csv.ParseError](err); ok {
				line, err = e.Line, e.Err
			}
			p.fail(line, "not valid CSV: %v", err)
			return nil, p.problems
		}
		line, _ := in.FieldPos(0)
		if p.columns != nil {
			p.record(line, fields)
		} else if p.heading(line, fields); p.problems != nil {
			return nil, p.problems
		}
	}
}

type csvParser struct {
	pointReader
	columns []string
}

// heading takes over the names of the columns.
func (p *csvParser) heading(line int, names []string) {
	for _, name := range names {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case !slices.Contains(columns, name):
			p.fail(line, "unknown column %q; %s", name, wantedColumns)
		case p.has(name):
			p.fail(line, "column %s twice", name)
		}
		p.columns = append(p.columns, name)
	}
	p.missing(line, "column ", p.has)
	if p.has("loss") == p.has("ppl") {
		p.fail(line, "want one of the columns loss (nats per token) and ppl (its exponential)")
	}
}

func (p *csvParser) has(name string) bool { return slices.Contains(p.columns, name) }

func (p *csvParser) record(line int, fields []string) {
	if len(fields) != len(p.columns) {
		p.fail(line, "%d fields, the heading has %d", len(fields), len(p.columns))
		return
	}
	var point Point
	for i, name := range p.columns {
		field := strings.TrimSpace(fields[i])
		if name == "method" {
			point.Method = field
			continue
		}
		x, err := strconv.ParseFloat(field, 64)
		if err != nil {
			p.fail(line, "%s is %q; want a number", name, field)
			return
		}
		point.set(name, x)
	}
	p.add(line, point)
}

// ParseJSON parses points from a JSON array of objects; see [ReadFile]. path is the name
// used in messages.
func ParseJSON(path string, text []byte) ([]Point, error) {
	p := jsonParser{pointReader{file: path}, text, json.NewDecoder(bytes.NewReader(text))}
	p.array()
	return p.result("no points in the array")
}

type jsonParser struct {
	pointReader
	text []byte
	dec  *json.Decoder
}

// lineAt is the line of an offset, or of what follows the white space and commas there.
func (p *jsonParser) lineAt(offset int64) int {
	rest := p.text[min(int(offset), len(p.text)):]
	skipped := len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,"))
	return 1 + bytes.Count(p.text[:min(int(offset)+skipped, len(p.text))], []byte("\n"))
}

func (p *jsonParser) syntax(err error) {
	line := p.lineAt(p.dec.InputOffset())
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		line = 1 + bytes.Count(p.text[:min(int(e.Offset), len(p.text))], []byte("\n"))
	}
	message := plainjson.Explain(p.text, err).Error()
	p.fail(line, "%s", strings.TrimPrefix(message, fmt.Sprintf("line %d: ", line)))
}

func (p *jsonParser) array() {
	first, err := p.dec.Token()
	if err != nil {
		p.syntax(err)
		return
	}
	if first != json.Delim('[') {
		p.fail(1, "want an array of objects, each with n, d, method, bits, and loss or ppl")
		return
	}
	for p.dec.More() {
		line := p.lineAt(p.dec.InputOffset())
		var fields map[string]json.RawMessage
		err := p.dec.Decode(&fields)
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			p.fail(line, "found %s where a point should be; want an object", e.Value)
			continue
		}
		if err != nil {
			p.syntax(err)
			return
		}
		before := len(p.problems)
		has := func(name string) bool { _, ok := fields[name]; return ok }
		if has("loss") == has("ppl") {
			p.fail(line, "want one of loss (nats per token) and ppl (its exponential)")
		}
		p.missing(line, "", has)
		var point Point
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			p.field(line, &point, name, fields[name])
		}
		if len(p.problems) == before {
			p.add(line, point)
		}
	}
	if _, err := p.dec.Token(); err != nil {
		p.syntax(err)
		return
	}
	if p.dec.More() {
		p.fail(p.lineAt(p.dec.InputOffset()), "something follows the array")
	}
}

func (p *jsonParser) field(line int, point *Point, name string, raw json.RawMessage) {
	null := string(raw) == "null"
	switch {
	case !slices.Contains(columns, name):
		p.fail(line, "unknown key %q; %s", name, wantedColumns)
	case name == "method":
		if json.Unmarshal(raw, &point.Method) != nil || null {
			p.fail(line, "method is %s; want a string", clip(raw))
		}
	default:
		var x float64
		if json.Unmarshal(raw, &x) != nil || null {
			p.fail(line, "%s is %s; want a number", name, clip(raw))
		}
		point.set(name, x)
	}
}

// clip shortens what a message quotes.
func clip(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + " …"
	}
	return string(raw)
}
