package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/host/study/snapshot"
	"github.com/cage-qat/cage/internal/safetext"
)

// renderer renders the results in a directory into documents.
type renderer struct {
	Dir string // directory of the files of kept results
	// Survey finds stale results, whose programs or data have changed since. If nil, they are not
	// detected.
	Survey study.Survey
	// Warn, if not nil, is called with an error about results that could not be compared.
	Warn func(error)

	// Pictures holds the SVG files of figures, by the paths used in documents. Render adds to it.
	Pictures map[string][]byte

	studies map[string]*results
}

// results holds the results of a study.
type results struct {
	file  *snapshot.File
	study *study.Study
	cells []study.Result
	stale int
}

// Render returns the document with all results updated. Errors name the line.
func (r *renderer) Render(ctx context.Context, text []byte) ([]byte, error) {
	list, err := marks(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	last := 0
	for _, m := range list {
		s, err := r.results(ctx, m.Study)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", m.line, err)
		}
		result, err := r.render(s, m)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", m.line, err)
		}
		out.Write(text[last:m.start])
		out.WriteString(result)
		last = m.end
	}
	out.Write(text[last:])
	return out.Bytes(), nil
}

// results returns the results of a study. It reads them only once.
func (r *renderer) results(ctx context.Context, name string) (*results, error) {
	if s, ok := r.studies[name]; ok {
		return s, nil
	}
	path := filepath.Join(r.Dir, name+".json")
	file, err := snapshot.Read(path)
	if err != nil {
		return nil, err
	}
	s := &results{file: file}
	if s.study, err = study.Load(file.From, file.Set...); err != nil {
		return nil, fmt.Errorf("%s: the study file: %w", path, err)
	}
	if unknown := file.Unknown(s.study); len(unknown) > 0 {
		return nil,
			fmt.Errorf("%s has results for cells that are no longer in %s, such as %s: run it again, "+
				"and 'cage study keep'", path, file.From, unknown[0])
	}
	s.cells = file.Results(s.study)
	if r.Survey != nil {
		var unknown *study.NotCompared
		s.stale, err = s.countStale(ctx, r.Survey)
		if err != nil && !errors.As(err, &unknown) {
			return nil, err
		}
		if err != nil && r.Warn != nil {
			r.Warn(fmt.Errorf("%s: %w", path, err))
		}
	}
	s.cells = s.study.Needed(s.cells)
	if r.studies == nil {
		r.studies = map[string]*results{}
	}
	r.studies[name] = s
	return s, nil
}

// countStale counts the stale results. They stay in the tables, with a note below.
func (s *results) countStale(ctx context.Context, survey study.Survey) (int, error) {
	compared := slices.Clone(s.cells)
	err := s.file.FindStale(ctx, s.study, compared, survey)
	n := 0
	for _, r := range compared {
		if r.State == study.Stale {
			n++
		}
	}
	return n, err
}

func (r *renderer) render(s *results, m mark) (string, error) {
	if m.Figure == 0 {
		return s.render(m)
	}
	text, files, err := s.figure(m)
	if r.Pictures == nil {
		r.Pictures = map[string][]byte{}
	}
	maps.Copy(r.Pictures, files)
	return text, err
}

// figure returns the text for a figure, and its files by the names used in that text. The name of a
// file consists of the figure's number and a hash of its restrictions.
func (s *results) figure(m mark) (text string, files map[string][]byte, err error) {
	if m.Figure > len(s.study.Figures) {
		return "", nil, fmt.Errorf("figure: found %d, but study %s has %d figures", m.Figure, m.Study,
			len(s.study.Figures))
	}
	one, f := *s.study, s.study.Figures[m.Figure-1]
	if f.Where, err = s.restricted(f.Where, m.Where); err != nil {
		return "", nil, err
	}
	one.Figures = []study.Figure{f}
	list, err := report.Figures(&one, s.cells)
	if err != nil {
		return "", nil, err
	}
	files = map[string][]byte{}
	var b strings.Builder
	for i, drawn := range list {
		if drawn.Empty() {
			return "", nil, fmt.Errorf("figure: no cell of %q is kept", drawn.Title)
		}
		name := fmt.Sprintf("../pictures/%s-%d", m.Study, m.Figure)
		if len(m.Where) > 0 {
			name += fmt.Sprintf("-%x", sha256.Sum256(fmt.Append(nil, m.Where)))[:9]
		}
		if i > 0 {
			name += fmt.Sprintf("-%d", i+1)
		}
		var svg bytes.Buffer
		if err := figure.Draw(&svg, figure.SVG, drawn.Picture, figure.Options{}); err != nil {
			return "", nil, err
		}
		files[name+".svg"] = svg.Bytes()
		fmt.Fprintf(&b, "\n![%s](%s.svg)\n\n%s\n", drawn.Title, name,
			strings.Join(append([]string{drawn.Title + "."}, drawn.Notes...), " "))
	}
	return b.String() + "\n" + s.source(f.Where) + "\n", files, nil
}

// render returns the text for a mark.
func (s *results) render(m mark) (string, error) {
	if m.Table > len(s.study.Tables) {
		return "", fmt.Errorf("table: found %d, but study %s has %d tables", m.Table, m.Study,
			len(s.study.Tables))
	}
	one, t := *s.study, s.study.Tables[m.Table-1]
	var err error
	if t.Where, err = s.restricted(t.Where, m.Where); err != nil {
		return "", err
	}
	one.Tables = []study.Table{t}
	tables := report.Tables(&one, s.cells)
	if m.alone {
		text := tables[0].Markdown(m.Show == differences)
		if len(text) == 0 {
			return "", fmt.Errorf("the table %q has no differences", tables[0].Title)
		}
		return "\n" + string(text) + "\n" + s.source(t.Where) + "\n", nil
	}
	e, err := tables[0].Find(m.At)
	choice, difference := e.ChoiceText(), tables[0].DifferenceText(e)
	switch {
	case err != nil:
		return "", err
	case m.Show == "n":
		return fmt.Sprint(e.N), nil
	case m.Show == "mean":
		return tables[0].MeanText(e) + s.caveat(e), nil
	case m.Show == "choice" && choice == "":
		return "", fmt.Errorf("table %q does not choose a best setting", tables[0].Title)
	case m.Show == "choice":
		return choice + s.caveat(e), nil
	case difference == "":
		return "", fmt.Errorf("%v of the table %q has no difference", m.At, tables[0].Title)
	}
	return difference + s.caveat(e), nil
}

// caveat returns the note that follows a number in a sentence if replicates are missing or results
// are stale. For tables, such notes are below the table.
func (s *results) caveat(e report.Entry) string {
	text := ""
	if e.N < e.Expected {
		text = fmt.Sprintf(" (%d of %d replicates)", e.N, e.Expected)
	}
	if s.stale > 0 {
		text += " (**stale**)"
	}
	return text
}

// restricted returns the restrictions of a table combined with those of a comment.
func (s *results) restricted(table, comment map[string][]string) (map[string][]string, error) {
	out := maps.Clone(table)
	if out == nil {
		out = map[string][]string{}
	}
	for name, labels := range comment {
		axis, ok := s.study.Axis(name)
		if !ok {
			return nil, fmt.Errorf("where: the study %s has no axis %q", s.study.Name, name)
		}
		allowed, both := axis.Labels, "the axis"
		if of, ok := table[name]; ok {
			allowed, both = of, "the table"
		}
		for _, label := range labels {
			if !slices.Contains(allowed, label) {
				return nil, fmt.Errorf("where.%s: %s has no label %q", name, both, label)
			}
		}
		out[name] = labels
	}
	return out, nil
}

// source describes the origin of a table's numbers, and whether they are stale.
func (s *results) source(where map[string][]string) string {
	all, used := map[string]bool{}, map[string]bool{} // by ID: a cell can be in several entries
	for _, r := range s.cells {
		if !r.Cell.Matches(where) {
			continue
		}
		all[r.Cell.ID] = true
		if r.HasOutcome() {
			used[r.Cell.ID] = true
		}
	}
	command := s.file.From
	for _, set := range s.file.Set {
		command += " --set " + safetext.ShellWord(set)
	}
	text := fmt.Sprintf("%d of %d cells of `cage study run %s`", len(used), len(all), command)
	if len(used) > 0 {
		text += ": " + origin(s.file.SourcesOf(used))
	}
	text += "."
	if s.stale > 0 {
		text += fmt.Sprintf(" **Stale:** %d of the study's runs would be made of other programs or "+
			"data now.", s.stale)
	}
	return text + "\n"
}

// origin formats revisions with their dates. It lists a build shared by several revisions only
// once.
func origin(sources []snapshot.Source) string {
	var builds []string
	dated := map[string][]string{}
	for _, source := range sources {
		var list []string
		for _, b := range source.Builds {
			list = append(list, ", "+strings.Join([]string{b.Device, b.Go, b.Target, b.SIMD}, " "))
		}
		build := strings.Join(list, "")
		if dated[build] == nil {
			builds = append(builds, build)
		}
		text := fmt.Sprintf("%s (%s)", source.Revision, source.Date)
		if !slices.Contains(dated[build], text) {
			dated[build] = append(dated[build], text)
		}
	}
	for i, build := range builds {
		revisions := "revision "
		if len(dated[build]) > 1 {
			revisions = "revisions "
		}
		builds[i] = revisions + strings.Join(dated[build], ", ") + build
	}
	return strings.Join(builds, "; ")
}
