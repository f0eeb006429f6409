package scaling

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Write writes the result for readers: two tables, notes on their intervals, and warnings, as text
// or Markdown.
func (fit *Fit) Write(w io.Writer, markdown bool) error {
	var b strings.Builder
	law := "L(N, D, P) = A/(N·eff)^α + B/D^β + E"
	if markdown {
		law = "`" + law + "`"
	}
	fmt.Fprintf(&b, "%s, %d points; root mean square of log L − log L̂: %.2g\n\n",
		law, len(fit.Points), fit.RMS)
	rows := [][]string{{"parameter", "value", "interval", ""}}
	for _, e := range fit.Parameters {
		rows = append(rows, []string{e.Name, significant(e.Value), e.text(significant), remark(e)})
	}
	writeRows(&b, markdown, rows)
	b.WriteByte('\n')
	writeRows(&b, markdown, fit.efficiencyRows())
	from := "of the linearized law"
	if fit.Replicates > 0 {
		from = fmt.Sprintf("from %d bootstrap replicates", fit.Replicates)
	}
	const note = "\n%s %% intervals %s; " +
		"%d of the %d best of %d starting points reached this minimum.\n"
	fmt.Fprintf(&b, note, significant(100*fit.Level), from, fit.Agree, fit.Finished, fit.Starts)
	for _, warning := range fit.Warnings {
		fmt.Fprintf(&b, "\nWarning: %s.\n", warning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (fit *Fit) efficiencyRows() [][]string {
	gains := slices.ContainsFunc(fit.Effs, func(e Efficiency) bool { return e.Gain != nil })
	heading := []string{"method", "bits", "points", "eff", "interval", "eff·16/P"}
	if gains {
		heading = append(heading, "gain", "interval")
	}
	rows := [][]string{append(heading, "")}
	for _, e := range fit.Effs {
		row := []string{
			e.Method, significant(e.Bits), strconv.Itoa(e.Points), threeDecimals(e.Value),
			e.text(threeDecimals), threeDecimals(e.Normalized),
		}
		switch {
		case gains && e.Gain != nil:
			row = append(row, percent(e.Gain.Value), e.Gain.text(percent))
		case gains:
			row = append(row, "", "")
		}
		rows = append(rows, append(row, remark(e.Estimate)))
	}
	return rows
}

// writeRows writes a table whose first row is the heading.
func writeRows(b *strings.Builder, markdown bool, rows [][]string) {
	if markdown {
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

// text formats the interval; "" if it is not known.
func (i Interval) text(format func(float64) string) string {
	if i.Low == i.Value && i.High == i.Value {
		return ""
	}
	return format(i.Low) + " – " + format(i.High)
}

func significant(x float64) string   { return strconv.FormatFloat(x, 'g', 4, 64) }
func threeDecimals(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }
func percent(x float64) string       { return fmt.Sprintf("%+.1f%%", 100*(x-1)) }

// Save writes the result as JSON and Markdown, and its figures, to a directory. Files of an earlier
// fit are replaced.
func (fit *Fit) Save(ctx context.Context, dir vfs.Path) error {
	all, err := atomicfile.JSON(fit)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := fit.Write(&text, true); err != nil {
		return err
	}
	type file struct {
		name    string
		content []byte
	}
	files := []file{{"fit.json", all}, {"fit.md", text.Bytes()}}
	for _, f := range fit.Figures() {
		for _, format := range []figure.Format{figure.SVG, figure.PNG} {
			var b bytes.Buffer
			err := errors.Join(ctx.Err(), figure.Draw(&b, format, f.Picture, f.Options))
			if err != nil {
				return fmt.Errorf("figure %s: %w", f.Name, err)
			}
			files = append(files, file{f.Name + "." + string(format), b.Bytes()})
		}
	}
	earlier := false // fit.json is of an earlier fit
	for i, f := range files {
		err = errors.Join(err, atomicfile.CheckOurs(dir.Join(f.name), func(content io.Reader) bool {
			if i == 0 {
				var fit Fit
				earlier = json.NewDecoder(content).Decode(&fit) == nil && len(fit.Parameters) > 0
			}
			return earlier
		}))
	}
	if err == nil {
		err = dir.MkdirAll()
	}
	for _, f := range files {
		if err == nil {
			err = atomicfile.WriteBytes(dir.Join(f.name), f.content)
		}
	}
	return err
}
