package report

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/safetext"
)

// Markdown returns the tables, and links to the figures, for a README or an issue.
func (r *Report) Markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n", safetext.Markdown(r.Name), r.Progress())
	for i := range r.Tables {
		for _, g := range r.Tables[i].Grids() {
			level := "##"
			if g.Differences {
				level = "###"
			}
			fmt.Fprintf(&b, "\n%s %s\n\n", level, safetext.Markdown(g.Title))
			g.markdown(&b)
		}
	}
	for _, f := range r.Figures {
		fmt.Fprintf(&b, "\n## %s\n\n", safetext.Markdown(f.Title))
		if f.Empty() {
			fmt.Fprintf(&b, "%s\n", nothingToDraw)
			continue
		}
		fmt.Fprintf(&b, "![%s](%s)\n\n[PDF](%s)\n", safetext.Markdown(f.Title), f.file("svg"),
			f.file("pdf"))
		for _, note := range f.Notes {
			fmt.Fprintf(&b, "\n%s\n", safetext.Markdown(note))
		}
	}
	failed := r.Failed()
	if len(failed) > 0 {
		b.WriteString("\n## Failed and stale cells\n\n")
	}
	for _, run := range failed {
		fmt.Fprintf(&b, "- %s: %s\n", safetext.Markdown(join(run.Labels)),
			safetext.Markdown(firstLine(run.Err)))
	}
	return []byte(b.String())
}

// Progress returns a sentence that says how many cells are in which state.
func (r *Report) Progress() string {
	s := fmt.Sprintf("%d of %d cells are done", r.States[string(study.Done)], r.Cells)
	for _, state := range []study.State{
		study.Failed, study.Stale, study.Running, study.Unevaluated, study.Interrupted, study.Missing,
	} {
		if n := r.States[string(state)]; n > 0 {
			s += fmt.Sprintf(", %d %s", n, state)
		}
	}
	are := func(n int) string { return map[bool]string{true: "is", false: "are"}[n == 1] }
	if n := len(r.Unreadable); n > 0 {
		s += fmt.Sprintf("; %d cannot be read and %s left out", n, are(n))
	}
	if n := len(r.Stale); n > 0 {
		s += fmt.Sprintf("; %d %s made by another plugin or of other data and %[2]s left out", n, are(n))
	}
	return s + "."
}

// Markdown returns the table of means (unless onlyDifferences is set) and, if there is a baseline,
// the table of differences from it, each followed by its notes and without a title.
func (t *Table) Markdown(onlyDifferences bool) []byte {
	var b strings.Builder
	for _, g := range t.Grids() {
		if onlyDifferences && !g.Differences {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		g.markdown(&b)
	}
	return []byte(b.String())
}

func (g grid) markdown(b *strings.Builder) {
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	var head, rule []string
	for i, text := range g.Head {
		head, rule = append(head, safetext.Markdown(text)), append(rule, "---:")
		if i < g.Texts {
			rule[i] = "---"
		}
	}
	line(head)
	line(rule)
	for _, row := range g.Rows {
		var cells []string
		for _, c := range row {
			text := safetext.Markdown(c.Text)
			if !c.Head {
				text = c.Text
				if c.Note != "" {
					text += " (" + c.Note + ")"
				}
				text = numberEscapes.Replace(text + c.Sign)
			}
			if c.Bold {
				text = "**" + text + "**"
			}
			cells = append(cells, text)
		}
		line(cells)
	}
	fmt.Fprintf(b, "\n%s\n", safetext.Markdown(strings.Join(g.Notes, " ")))
}

// numberEscapes escapes text beside a number, which comes from a format in the study file.
var numberEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "<", `\<`, "*", `\*`, "`", "\\`")

// Text returns the rows as strings, with the headings first. Bold entries are marked by a star,
// which TextNotes explains.
func (g grid) Text() [][]string {
	out := [][]string{lists.Map(g.Head, safetext.Words)}
	for _, row := range g.Rows {
		var texts []string
		for _, c := range row {
			text := c.Text + c.Sign
			if c.Bold {
				text += " *"
			}
			if c.Note != "" {
				text += " (" + c.Note + ")"
			}
			texts = append(texts, text)
		}
		out = append(out, texts)
	}
	return out
}

// TextNotes returns the sentences that explain Text.
func (g grid) TextNotes() string {
	return strings.Replace(strings.Join(g.Notes, " "), "Bold:", "*:", 1)
}

// LaTeX returns the tables for a paper, with rules from the booktabs package.
func (r *Report) LaTeX() []byte {
	var b strings.Builder
	b.WriteString("% Needs \\usepackage{booktabs}.\n")
	for i := range r.Tables {
		for k, g := range r.Tables[i].Grids() {
			label := fmt.Sprintf("tab:%s-%d", slug(r.Name), i+1)
			if g.Differences {
				label += "-differences"
			} else if k > 0 {
				label += "-overview"
			}
			g.latex(&b, label)
		}
	}
	return []byte(b.String())
}

// latex writes the table, with a label for references. The short caption is for the table list.
func (g grid) latex(b *strings.Builder, label string) {
	const wide = 50 // characters of a row from which a table spans both columns of a page
	rows, width := [][]string{lists.Map(g.Head, latexText)}, 0
	for k, head := range g.Head {
		longest := utf8.RuneCountInString(head)
		for _, row := range g.Rows {
			longest = max(longest, utf8.RuneCountInString(row[k].Text+row[k].Note))
		}
		width += longest + 2
	}
	for _, row := range g.Rows {
		rows = append(rows, lists.Map(row, cell.latex))
	}
	environment := "table"
	if width >= wide {
		environment = "table*"
	}
	title := latexText(g.Title)
	fmt.Fprintf(b, "\n\\begin{%s}\n\\centering\n\\caption[{%s}]{%s. %s}\n\\label{%s}\n",
		environment, title, title, latexText(strings.Join(g.Notes, " ")), label)
	fmt.Fprintf(b, "\\begin{tabular}{@{}%s%s@{}}\n\\toprule\n",
		strings.Repeat("l", g.Texts), strings.Repeat("r", len(g.Head)-g.Texts))
	for i, row := range rows {
		// \toprule, \midrule and \\ would take a following bracket or star as an argument.
		text := strings.Join(row, " & ")
		if strings.HasPrefix(text, "[") || strings.HasPrefix(text, "*") {
			text = "{}" + text
		}
		b.WriteString(text + " \\\\\n")
		if i == 0 {
			b.WriteString("\\midrule\n")
		}
	}
	fmt.Fprintf(b, "\\bottomrule\n\\end{tabular}\n\\end{%s}\n", environment)
}

func (c cell) latex() string {
	switch {
	case c.Head:
		return latexText(c.Text)
	case c.Text == "":
		return ""
	case c.Text == absent:
		return "--"
	}
	s := "$" + latexNumbers.Replace(c.Text) + "$"
	if c.Bold {
		s = "{\\boldmath" + s + "}"
	}
	if sign := strings.TrimSpace(c.Sign); sign != "" {
		s += "\\rlap{$^{" + latexNumbers.Replace(sign) + "}$}"
	}
	if c.Note != "" {
		s += " (" + latexText(c.Note) + ")"
	}
	return s
}

// latexNumbers converts numbers and the signs that follow them to math mode.
var latexNumbers = strings.NewReplacer("−", "-", " ± ", " \\pm ", "∞", "\\infty",
	"NaN", "\\mathrm{NaN}", "%", "\\%", "≈", "\\approx", "‡", "\\ddagger")

// latexText escapes text. Greek letters and mathematical symbols, which some engines' fonts lack,
// are written as commands.
func latexText(s string) string { return latexEscapes.Replace(safetext.Words(s)) }

var latexEscapes = func() *strings.Replacer {
	pairs := []string{
		`\`, `\textbackslash{}`, `{`, `\{`, `}`, `\}`, `$`, `\$`, `&`, `\&`, `#`, `\#`, `%`, `\%`,
		`_`, `\_`, `~`, `\textasciitilde{}`, `^`, `\textasciicircum{}`, `<`, `\textless{}`,
		`>`, `\textgreater{}`, `|`, `\textbar{}`,
		"–", "--", "—", "---", "…", `\ldots{}`,
	}
	const signs = `−- ±\pm ×\times ·\cdot ≤\le ≥\ge ≈\approx †\dagger ‡\ddagger →\to
		∞\infty ²^2 ³^3 ᵀ^{\top} ‖\Vert ∇\nabla
		₀_0 ₁_1 ₂_2 ₃_3 ₄_4 ₅_5 ₆_6 ₇_7 ₈_8 ₉_9
		Γ\Gamma Δ\Delta Θ\Theta Λ\Lambda Ξ\Xi Π\Pi Σ\Sigma Φ\Phi Ψ\Psi Ω\Omega
		α\alpha β\beta γ\gamma δ\delta ε\epsilon ζ\zeta η\eta θ\theta ι\iota κ\kappa
		λ\lambda μ\mu ν\nu ξ\xi
		π\pi ρ\rho ς\varsigma σ\sigma τ\tau υ\upsilon φ\phi χ\chi ψ\psi ω\omega`
	for _, sign := range strings.Fields(signs) {
		_, n := utf8.DecodeRuneInString(sign)
		pairs = append(pairs, sign[:n], "$"+sign[n:]+"$")
	}
	return strings.NewReplacer(pairs...)
}()
