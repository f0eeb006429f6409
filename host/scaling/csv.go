package scaling

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ParseCSV reads points from CSV. The first line names the columns, in any order; lines
// that begin with # are comments. path is what messages name.
func ParseCSV(path string, text []byte) ([]Point, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment, r.TrimLeadingSpace, r.FieldsPerRecord = '#', true, -1
	p := csvParser{file: path}
	heading, err := r.Read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, Problems{{path, 0, "no lines; the first must name the columns: " + wanted}}
		}
		p.syntax(err)
		return nil, p.problems
	}
	line, _ := r.FieldPos(0)
	p.heading(line, heading)
	for len(p.columns) > 0 {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.syntax(err)
			break
		}
		line, _ := r.FieldPos(0)
		p.record(line, record)
	}
	if p.problems == nil && p.points == nil {
		p.fail(0, "no points below the heading")
	}
	if p.problems != nil {
		return nil, p.problems
	}
	return p.points, nil
}

type csvParser struct {
	file     string
	columns  []string
	points   []Point
	problems Problems
}

func (p *csvParser) fail(line int, format string, args ...any) {
	p.problems = append(p.problems, &Problem{p.file, line, fmt.Sprintf(format, args...)})
}

func (p *csvParser) syntax(err error) {
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		p.fail(e.Line, "not valid CSV: %v", e.Err)
		return
	}
	p.fail(0, "not valid CSV: %v", err)
}

// heading takes over the names of the columns, unless something is wrong with them.
func (p *csvParser) heading(line int, names []string) {
	before := len(p.problems)
	var found []string
	for _, name := range names {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case !slices.Contains(columns, name):
			p.fail(line, "unknown column %q; %s", name, wanted)
		case slices.Contains(found, name):
			p.fail(line, "column %s twice", name)
		}
		found = append(found, name)
	}
	for _, name := range columns[:4] {
		if !slices.Contains(found, name) {
			p.fail(line, "no column %s; %s", name, wanted)
		}
	}
	if slices.Contains(found, "loss") == slices.Contains(found, "ppl") {
		p.fail(line, "want one of the columns loss (nats per token) and ppl (its exponential)")
	}
	if len(p.problems) == before {
		p.columns = found
	}
}

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
