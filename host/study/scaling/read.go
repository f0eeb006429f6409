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

	"github.com/cage-qat/cage/internal/vfs"
)

// ReadFile reads the points in a CSV file; see [ParseCSV].
func ReadFile(path string) ([]Point, error) {
	text, err := vfs.At(path).ReadFile()
	if err != nil {
		return nil, err
	}
	return ParseCSV(path, bytes.TrimPrefix(text, []byte("\ufeff")))
}

// ParseCSV parses points in CSV. The first line names the columns, in any order: n, d, method,
// bits, and either loss in nats per token or ppl, its exponential; other columns are an error.
// Lines that begin with # are comments. The path is used in messages.
func ParseCSV(path string, text []byte) (points []Point, err error) {
	columns := []string{"n", "d", "method", "bits", "loss", "ppl"}
	const wanted = "want n, d, method, bits, and loss or ppl"
	line := 0
	fail := func(format string, args ...any) ([]Point, error) {
		return nil, fmt.Errorf("%s:%d: %s", path, line, fmt.Sprintf(format, args...))
	}
	in := csv.NewReader(bytes.NewReader(text))
	in.Comment, in.TrimLeadingSpace, in.FieldsPerRecord = '#', true, -1
	var names []string
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if e, ok := errors.AsType[*csv.ParseError](err); ok {
			line, err = e.Line, e.Err
		}
		if err != nil {
			return fail("not valid CSV: %v", err)
		}
		line, _ = in.FieldPos(0)
		if names == nil {
			for _, name := range fields {
				name = strings.ToLower(strings.TrimSpace(name))
				if !slices.Contains(columns, name) {
					return fail("unknown column %q; %s", name, wanted)
				}
				if slices.Contains(names, name) {
					return fail("column %s twice", name)
				}
				names = append(names, name)
			}
			for _, name := range columns[:4] {
				if !slices.Contains(names, name) {
					return fail("no column %s; %s", name, wanted)
				}
			}
			if slices.Contains(names, "loss") == slices.Contains(names, "ppl") {
				return fail("want one of the columns loss (nats per token) and ppl (its exponential)")
			}
			continue
		}
		if len(fields) != len(names) {
			return fail("%d fields, the heading has %d", len(fields), len(names))
		}
		p := Point{Source: fmt.Sprintf("%s:%d", path, line)}
		for i, name := range names {
			field := strings.TrimSpace(fields[i])
			if name == "method" {
				p.Method = field
				continue
			}
			x, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return fail("%s is %q; want a number", name, field)
			}
			if name == "ppl" {
				name, x = "loss", math.Log(x)
			}
			fields := map[string]*float64{"n": &p.N, "d": &p.D, "bits": &p.Bits, "loss": &p.Loss}
			*fields[name] = x
		}
		if wrong := p.check(); wrong != "" {
			return fail("%s", wrong)
		}
		points = append(points, p)
	}
	switch {
	case names == nil:
		return nil, fmt.Errorf("%s: no lines; the first must name the columns: %s", path, wanted)
	case points == nil:
		return nil, fmt.Errorf("%s: no points below the heading", path)
	}
	return points, nil
}
