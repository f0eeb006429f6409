package scaling

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ParseCSV parses points from CSV. The first line names the columns, in any order; lines
// that begin with # are comments. path is the name used in messages.
func ParseCSV(path string, text []byte) ([]Point, error) {
	in := csv.NewReader(bytes.NewReader(text))
	in.Comment, in.TrimLeadingSpace, in.FieldsPerRecord = '#', true, -1
	p := csvParser{reading: reading{file: path}}
	for {
		fields, err := in.Read()
		switch {
		case errors.Is(err, io.EOF) && p.columns == nil:
			p.fail(0, "no lines; the first must name the columns: "+wantColumns)
			return nil, p.problems
		case errors.Is(err, io.EOF):
			return p.result("no points below the heading")
		case err != nil:
			p.syntax(err)
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
	reading
	columns []string
}

func (p *csvParser) syntax(err error) {
	line := 0
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		line, err = e.Line, e.Err
	}
	p.fail(line, "not valid CSV: %v", err)
}

// heading takes over the names of the columns.
func (p *csvParser) heading(line int, names []string) {
	for _, name := range names {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case !slices.Contains(columns, name):
			p.fail(line, "unknown column %q; %s", name, wantColumns)
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
