package report

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/host/study"
)

// Markdown returns the tables and the names of the figures, for a README or an issue.
func (r *Report) Markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n", markdownText(r.Name), r.Progress())
	for i := range r.Tables {
		r.Tables[i].markdown(&b)
	}
	for _, f := range r.Figures {
		fmt.Fprintf(&b, "\n## %s\n\n", markdownText(f.Title))
		if f.Empty() {
			fmt.Fprintf(&b, "%s\n", nothingToDraw)
			continue
		}
		fmt.Fprintf(&b, "![%s](%s)\n\n[PDF](%s)\n", markdownText(f.Title), f.file("svg"), f.file("pdf"))
		for _, note := range f.Notes {
			fmt.Fprintf(&b, "\n%s\n", markdownText(note))
		}
	}
	failed := r.failed()
	if len(failed) > 0 {
		b.WriteString("\n## Failed and stale cells\n\n")
	}
	for _, run := range failed {
		fmt.Fprintf(&b, "- %s: %s\n", markdownText(join(run.Labels)), markdownText(firstLine(run.Err)))
	}
	return []byte(b.String())
}

// Progress says how much of the study the report covers.
func (r *Report) Progress() string {
	done := r.States[string(study.Done)]
	s := fmt.Sprintf("%d of %d cells are done", done, r.Cells)
	for _, state := range []study.State{study.Failed, study.Stale, study.Running, study.Unevaluated, study.Interrupted, study.Missing} {
		if n := r.States[string(state)]; n > 0 {
			s += fmt.Sprintf(", %d %s", n, state)
		}
	}
	if n := len(r.Damages); n > 0 {
		s += fmt.Sprintf("; %d cannot be read and %s left out", n, map[bool]string{true: "is", false: "are"}[n == 1])
	}
	if n := len(r.Stale); n > 0 {
		s += fmt.Sprintf("; %d %s made by another plugin or of other data and %[2]s left out", n, map[bool]string{true: "is", false: "are"}[n == 1])
	}
	return s + "."
}

func (t *Table) markdown(b *strings.Builder) {
	for _, g := range t.grids() {
		level := "##"
		if g.differences {
			level = "###"
		}
		fmt.Fprintf(b, "\n%s %s\n\n", level, markdownText(g.title))
		t.markdownGrid(b, g)
	}
}

// Markdown returns the means and, if there is a baseline, the differences from it. Each
// is followed by explanatory notes, and there is no title.
func (t *Table) Markdown() []byte {
	var b strings.Builder
	for i, g := range t.grids() {
		if i > 0 {
			b.WriteByte('\n')
		}
		t.markdownGrid(&b, g)
	}
	return []byte(b.String())
}

// MarkdownDifferences returns the differences from the baseline alone; nil where there are none.
func (t *Table) MarkdownDifferences() []byte {
	var b strings.Builder
	for _, g := range t.grids() {
		if g.differences {
			t.markdownGrid(&b, g)
		}
	}
	return []byte(b.String())
}

func (t *Table) markdownGrid(b *strings.Builder, g grid) {
	var head, rule []string
	for _, axis := range t.RowAxes {
		head, rule = append(head, markdownText(axis)), append(rule, "---")
	}
	for _, labels := range g.columns {
		head, rule = append(head, markdownText(join(labels))), append(rule, "---:")
	}
	markdownRow(b, head)
	markdownRow(b, rule)
	for i, labels := range t.Rows {
		var row []string
		for _, l := range labels {
			row = append(row, markdownText(l))
		}
		for _, c := range g.cells[i] {
			row = append(row, c.markdown())
		}
		markdownRow(b, row)
	}
	fmt.Fprintf(b, "\n%s\n", markdownText(strings.Join(g.notes, " ")))
}

func (c cell) markdown() string {
	text := c.text
	if c.note != "" {
		text += " (" + c.note + ")"
	}
	text = numberEscapes.Replace(text + c.sign)
	if c.bold {
		return "**" + text + "**"
	}
	return text
}

func markdownRow(b *strings.Builder, cells []string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func markdownText(s string) string {
	var b strings.Builder
	for _, r := range line(s) {
		if strings.ContainsRune("\\`*_{}[]<>#|~&$", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// numberEscapes are for what a format of the study file may put beside a number.
var numberEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "<", `\<`, "*", `\*`, "`", "\\`")
