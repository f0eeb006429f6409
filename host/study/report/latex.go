package report

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// LaTeX returns the tables for a paper, with the rules of the package booktabs.
func (r *Report) LaTeX() []byte {
	var b strings.Builder
	b.WriteString("% Needs \\usepackage{booktabs}.\n")
	for i := range r.Tables {
		r.Tables[i].latex(&b, fmt.Sprintf("tab:%s-%d", slug(r.Name), i+1))
	}
	return []byte(b.String())
}

// wideTable is the number of characters in a row from which a table takes both columns of a page
// with two.
const wideTable = 50

// latex writes the table, with a label to refer to. The short caption is that of a list of tables.
func (t *Table) latex(b *strings.Builder, label string) {
	for _, g := range t.grids() {
		if g.differences {
			label += "-differences"
		}
		environment := "table"
		if t.width(g) >= wideTable {
			environment = "table*"
		}
		title := latexText(g.title)
		fmt.Fprintf(b, "\n\\begin{%s}\n\\centering\n\\caption[{%s}]{%s. %s}\n\\label{%s}\n\\begin{tabular}{@{}%s%s@{}}\n\\toprule\n",
			environment, title, title, latexText(strings.Join(g.notes, " ")), label,
			strings.Repeat("l", len(t.RowAxes)), strings.Repeat("r", len(g.columns)))
		t.latexHead(b, g.columns)
		b.WriteString("\\midrule\n")
		for i, labels := range t.Rows {
			row := latexAll(labels)
			for _, c := range g.cells[i] {
				row = append(row, c.latex())
			}
			latexRow(b, row)
		}
		fmt.Fprintf(b, "\\bottomrule\n\\end{tabular}\n\\end{%s}\n", environment)
	}
}

// width is the number of characters in the widest row that the columns of a grid need.
func (t *Table) width(g grid) (sum int) {
	for k := range t.RowAxes {
		widest := 0
		for _, labels := range t.Rows {
			widest = max(widest, utf8.RuneCountInString(labels[k]))
		}
		sum += widest + 2
	}
	for c, labels := range g.columns {
		widest := utf8.RuneCountInString(labels[len(labels)-1])
		for _, row := range g.cells {
			widest = max(widest, utf8.RuneCountInString(row[c].text+row[c].note))
		}
		sum += widest + 2
	}
	return sum
}

// latexRow writes a row. The commands before it take what is in brackets, or a star, as theirs.
func latexRow(b *strings.Builder, row []string) {
	text := strings.Join(row, " & ")
	if strings.HasPrefix(text, "[") || strings.HasPrefix(text, "*") {
		text = "{}" + text
	}
	b.WriteString(text + " \\\\\n")
}

func (c cell) latex() string {
	switch c.text {
	case "":
		return ""
	case absent:
		return "--"
	}
	s := "$" + latexNumbers.Replace(c.text) + "$"
	if c.bold {
		s = "{\\boldmath" + s + "}"
	}
	if sign := strings.TrimSpace(c.sign); sign != "" {
		s += "\\rlap{$^{" + latexSigns.Replace(sign) + "}$}"
	}
	switch {
	case c.note == "":
		return s
	case c.difference:
		return s + " ($" + c.note + "$)"
	}
	return s + " (" + latexText(c.note) + ")"
}

// latexHead writes a line of headings for each axis of the columns.
func (t *Table) latexHead(b *strings.Builder, columns [][]string) {
	levels := headings(columns)
	for level, spans := range levels {
		row := make([]string, len(t.RowAxes))
		if level == len(levels)-1 {
			row = latexAll(t.RowAxes)
		}
		var rules []string
		at := len(t.RowAxes) + 1
		for _, s := range spans {
			text := latexText(s.Label)
			if s.Columns > 1 {
				text = fmt.Sprintf("\\multicolumn{%d}{c}{%s}", s.Columns, text)
				rules = append(rules, fmt.Sprintf("\\cmidrule(lr){%d-%d}", at, at+s.Columns-1))
			}
			row = append(row, text)
			at += s.Columns
		}
		latexRow(b, row)
		if len(rules) > 0 {
			fmt.Fprintf(b, "%s\n", strings.Join(rules, " "))
		}
	}
}

// headings are the labels above columns, level by level; neighbours with the same
// labels down to a level share their heading.
func headings(columns [][]string) [][]heading {
	if len(columns) == 0 {
		return nil
	}
	var levels [][]heading
	for level := range columns[0] {
		var spans []heading
		for c, labels := range columns {
			last := level == len(labels)-1
			if c > 0 && !last && placeKey([][]string{labels[:level+1]}) == placeKey([][]string{columns[c-1][:level+1]}) {
				spans[len(spans)-1].Columns++
				continue
			}
			spans = append(spans, heading{Label: labels[level], Columns: 1})
		}
		levels = append(levels, spans)
	}
	return levels
}

func latexAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = latexText(s)
	}
	return out
}

// latexNumbers sets numbers in mathematics.
var latexNumbers = strings.NewReplacer("−", "-", " ± ", " \\pm ", "∞", "\\infty", "NaN", "\\mathrm{NaN}", "%", "\\%")

// latexSigns sets signs behind numbers in mathematics.
var latexSigns = strings.NewReplacer("≈", "\\approx", "‡", "\\ddagger")

// latexText escapes a text. Greek letters and signs of mathematics, which not every
// engine has in its fonts, are written as commands.
func latexText(s string) string { return latexEscapes.Replace(line(s)) }

var latexEscapes = func() *strings.Replacer {
	pairs := []string{
		`\`, `\textbackslash{}`, `{`, `\{`, `}`, `\}`, `$`, `\$`, `&`, `\&`, `#`, `\#`, `%`, `\%`, `_`, `\_`,
		`~`, `\textasciitilde{}`, `^`, `\textasciicircum{}`, `<`, `\textless{}`, `>`, `\textgreater{}`, `|`, `\textbar{}`,
		"−", `$-$`, "±", `$\pm$`, "×", `$\times$`, "·", `$\cdot$`, "≤", `$\le$`, "≥", `$\ge$`, "≈", `$\approx$`, "†", `$\dagger$`, "‡", `$\ddagger$`, "→", `$\to$`, "∞", `$\infty$`,
		"–", "--", "—", "---", "…", `\ldots{}`, "²", `$^2$`, "³", `$^3$`, "ᵀ", `$^{\top}$`, "‖", `$\Vert$`, "∇", `$\nabla$`,
	}
	for digit := range 10 {
		pairs = append(pairs, string(rune('₀'+digit)), fmt.Sprintf("$_%d$", digit))
	}
	names := strings.Fields("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau upsilon phi chi psi omega")
	for i, name := range names {
		if name == "omicron" {
			continue // it is written as the letter o
		}
		pairs = append(pairs, string(rune('α'+i)), `$\`+name+`$`)
	}
	for _, capital := range []string{"ΓGamma", "ΔDelta", "ΘTheta", "ΛLambda", "ΞXi", "ΠPi", "ΣSigma", "ΦPhi", "ΨPsi", "ΩOmega"} {
		pairs = append(pairs, capital[:2], `$\`+capital[2:]+`$`)
	}
	return strings.NewReplacer(pairs...)
}()
