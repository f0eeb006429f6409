package scaling

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Format is an output format for a fit.
type Format string

// The formats that [Fit.Write] supports.
const (
	Text     Format = "text"
	Markdown Format = "markdown"
	CSV      Format = "csv"  // one line for each parameter and efficiency
	JSON     Format = "json" // everything, residuals included
)

// Formats lists the formats.
var Formats = []Format{Text, Markdown, CSV, JSON}

// Write writes a fit in the given format.
func (fit *Fit) Write(w io.Writer, format Format) error {
	switch format {
	case Text, Markdown:
		return fit.prose(w, format)
	case CSV:
		return fit.csv(w)
	case JSON:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(fit)
	}
	return fmt.Errorf("unknown format %q; want one of %v", format, Formats)
}

// prose is the result for a reader: two tables and what to know about them.
func (fit *Fit) prose(w io.Writer, format Format) error {
	var b strings.Builder
	law := "L(N, D, P) = A/(N·eff)^α + B/D^β + E"
	if format == Markdown {
		law = "`" + law + "`"
	}
	fmt.Fprintf(&b, "%s, %d points; root mean square of log L − log L̂: %.2g\n\n", law, len(fit.Points), fit.RMS)
	rows := [][]string{{"parameter", "value", "interval", ""}}
	for _, e := range fit.Parameters {
		rows = append(rows, []string{e.Name, significant(e.Value), interval(e, significant), remark(e)})
	}
	writeRows(&b, format, rows)
	b.WriteByte('\n')
	writeRows(&b, format, fit.efficiencyRows())
	from := "of the linearized law"
	if fit.Replicates > 0 {
		from = fmt.Sprintf("from %d bootstrap replicates", fit.Replicates)
	}
	fmt.Fprintf(&b, "\n%s %% intervals %s; %d of the %d best of %d starting points came to this minimum.\n",
		strconv.FormatFloat(100*fit.Level, 'g', 4, 64), from, fit.Agree, fit.Finished, fit.Starts)
	for _, warning := range fit.Warnings {
		fmt.Fprintf(&b, "\nWarning: %s.\n", warning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (fit *Fit) efficiencyRows() [][]string {
	gains := false
	for _, e := range fit.Effs {
		gains = gains || e.Gain != nil
	}
	heading := []string{"method", "bits", "points", "eff", "interval", "eff·16/P"}
	if gains {
		heading = append(heading, "gain", "interval")
	}
	rows := [][]string{append(heading, "")}
	for _, e := range fit.Effs {
		row := []string{e.Method, number(round(e.Bits)), strconv.Itoa(e.Points), threeDecimals(e.Value), interval(e.Estimate, threeDecimals), threeDecimals(e.Normalized)}
		switch {
		case gains && e.Gain != nil:
			row = append(row, percent(e.Gain.Value), interval(Estimate{Low: e.Gain.Low, High: e.Gain.High, Value: e.Gain.Value}, percent))
		case gains:
			row = append(row, "", "")
		}
		rows = append(rows, append(row, remark(e.Estimate)))
	}
	return rows
}

// writeRows writes aligned columns, or a table of Markdown; the first row is the heading.
func writeRows(b *strings.Builder, format Format, rows [][]string) {
	if format == Markdown {
		for i, row := range rows {
			for k, cell := range row {
				row[k] = strings.ReplaceAll(cell, "|", `\|`)
			}
			fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
			}
		}
		return
	}
	var aligned strings.Builder
	t := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	t.Flush()
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

func remark(e Estimate) string {
	if e.Status == Fitted {
		return ""
	}
	return string(e.Status)
}

func interval(e Estimate, format func(float64) string) string {
	if e.Low == e.Value && e.High == e.Value {
		return ""
	}
	return format(e.Low) + " – " + format(e.High)
}

func significant(x float64) string   { return strconv.FormatFloat(x, 'g', 4, 64) }
func threeDecimals(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }
func percent(x float64) string       { return fmt.Sprintf("%+.1f%%", 100*(x-1)) }

// round shortens numbers of bits such as log₂3.
func round(bits float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(bits, 'g', 4, 64), 64)
	return short
}

func (fit *Fit) csv(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write([]string{"parameter", "method", "bits", "points", "value", "low", "high", "std_err_log", "normalized", "gain", "gain_low", "gain_high", "status"})
	for _, e := range fit.Parameters {
		c.Write([]string{e.Name, "", "", "", number(e.Value), number(e.Low), number(e.High), numberIfKnown(e.StdErr), "", "", "", "", string(e.Status)})
	}
	for _, e := range fit.Effs {
		row := []string{"eff", e.Method, number(e.Bits), strconv.Itoa(e.Points), number(e.Value), number(e.Low), number(e.High), numberIfKnown(e.StdErr), number(e.Normalized), "", "", ""}
		if e.Gain != nil {
			copy(row[9:], []string{number(e.Gain.Value), number(e.Gain.Low), number(e.Gain.High)})
		}
		c.Write(append(row, string(e.Status)))
	}
	c.Flush()
	return c.Error()
}

func numberIfKnown(x float64) string {
	if x == 0 {
		return ""
	}
	return number(x)
}

// Save writes the result in all its forms, and its figures, into a directory. It replaces those of an earlier fit, of which
// fit.json comes first.
func (fit *Fit) Save(ctx context.Context, dir vfs.Path) error {
	type file struct {
		name    string
		content bytes.Buffer
	}
	var files []*file
	add := func(name string, write func(w io.Writer) error) error {
		f := &file{name: name}
		files = append(files, f)
		return errors.Join(ctx.Err(), write(&f.content))
	}
	for _, f := range []struct {
		name   string
		format Format
	}{{"fit.json", JSON}, {"fit.md", Markdown}, {"fit.csv", CSV}} {
		if err := add(f.name, func(w io.Writer) error { return fit.Write(w, f.format) }); err != nil {
			return err
		}
	}
	for _, f := range fit.Figures() {
		for _, format := range []figure.Format{figure.SVG, figure.PNG} {
			if err := add(f.Name+"."+string(format), func(w io.Writer) error { return figure.Draw(w, format, f.Picture, f.Options) }); err != nil {
				return fmt.Errorf("figure %s: %w", f.Name, err)
			}
		}
	}
	before := false
	err := atomicfile.CheckOurs(dir.Join(files[0].name), func(content io.Reader) bool {
		var earlier struct {
			Parameters []Estimate `json:"parameters"`
		}
		before = json.NewDecoder(content).Decode(&earlier) == nil && len(earlier.Parameters) > 0
		return before
	})
	for _, f := range files[1:] {
		err = errors.Join(err, atomicfile.CheckOurs(dir.Join(f.name), func(io.Reader) bool { return before }))
	}
	if err == nil {
		err = dir.MkdirAll()
	}
	for _, f := range files {
		if err == nil {
			err = atomicfile.WriteBytes(dir.Join(f.name), f.content.Bytes())
		}
	}
	return err
}
