package scaling

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"
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

// ReadFile reads points from a CSV file. The first line names the columns: n, d, method and
// bits, and either loss in nats per token or ppl, its exponential; no others. If the content is
// wrong, the error is [Problems].
func ReadFile(path string) ([]Point, error) {
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
	return ParseCSV(path, bytes.TrimPrefix(text, []byte("\ufeff")))
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

// ParseCSV parses points; see [ReadFile]. The columns may stand in any order; lines that begin
// with # are comments. path is the name used in messages.
func ParseCSV(path string, text []byte) ([]Point, error) {
	in := csv.NewReader(bytes.NewReader(text))
	in.Comment, in.TrimLeadingSpace, in.FieldsPerRecord = '#', true, -1
	p := csvParser{file: path}
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
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
	switch {
	case p.columns == nil:
		p.fail(0, "no lines; the first must name the columns: "+wantedColumns)
	case p.points == nil && p.problems == nil:
		p.fail(0, "no points below the heading")
	}
	if p.problems != nil {
		return nil, p.problems
	}
	return p.points, nil
}

// csvParser collects the points of a file and what is wrong with it.
type csvParser struct {
	file     string
	columns  []string
	points   []Point
	problems Problems
}

func (p *csvParser) fail(line int, format string, args ...any) {
	p.problems = append(p.problems, &Problem{p.file, line, fmt.Sprintf(format, args...)})
}

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
	for _, name := range columns[:4] {
		if !p.has(name) {
			p.fail(line, "no column %s; %s", name, wantedColumns)
		}
	}
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
	point := Point{Source: fmt.Sprintf("%s:%d", p.file, line)}
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
	if wrong := point.check(); wrong != "" {
		p.fail(line, "%s", wrong)
		return
	}
	p.points = append(p.points, point)
}
