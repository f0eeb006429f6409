package scaling

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/internal/regular"
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
	f, err := regular.Open(path)
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

const wantColumns = "want n, d, method, bits, and loss or ppl"

// reading collects the points of a file and what is wrong with it.
type reading struct {
	file     string
	points   []Point
	problems Problems
}

func (r *reading) fail(line int, format string, args ...any) {
	r.problems = append(r.problems, &Problem{r.file, line, fmt.Sprintf(format, args...)})
}

// result is what was read; none says that there are no points.
func (r *reading) result(none string) ([]Point, error) {
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
func (r *reading) missing(line int, what string, has func(name string) bool) {
	for _, name := range columns[:4] {
		if !has(name) {
			r.fail(line, "no %s%s; %s", what, name, wantColumns)
		}
	}
}

// add takes a point, unless something is wrong with it.
func (r *reading) add(line int, p Point) {
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
