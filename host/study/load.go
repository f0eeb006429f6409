package study

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/schema"
)

// maxParallel is the maximum value of study.parallel.
const maxParallel = 4096

// Load reads and checks the study file at path and resolves every cell. In the study's directory,
// it looks only for the names of existing cells. Overrides change keys of the base, as those of
// [config.Load].
//
// The error is a *[plaintoml.Error] if the file cannot be read or parsed, otherwise
// [plaintoml.Errors] with every problem found, including those of the cells' configurations.
func Load(path string, overrides ...string) (*Study, error) {
	doc, text, err := plaintoml.ReadFile(path, "a study")
	if err != nil {
		return nil, err
	}
	return load(path, text, doc, overrides)
}

// Parse is like [Load] for text that has already been read. The path is used in messages, and a
// base file is relative to it.
func Parse(path string, text []byte) (*Study, error) {
	doc, err := plaintoml.Parse(path, text)
	if err != nil {
		return nil, err
	}
	return load(path, text, doc, nil)
}

func load(path string, text []byte, doc *plaintoml.Document, overrides []string) (*Study, error) {
	s := &Study{File: path, Set: overrides, text: text}
	r := &reader{Reader: plaintoml.NewReader(doc), dir: filepath.Dir(path)}
	top := &table{reader: r, values: doc.Values()}
	if !top.has("base") && !top.has("study") && (top.has("train") || top.has("model")) {
		return nil, doc.ErrorAt("", "describes a training run, not a study").WithHint(
			"want [study] and base, the path of such a file, or: cage train " + path)
	}
	var baseValue any
	study := &table{reader: r, path: "study"}
	top.read(schema.Key{Name: "base", To: &baseValue, Is: schema.Anything(baseIs)},
		schema.Key{Name: "study", To: &study.values})
	base := s.readBase(top, baseValue)
	if base != nil {
		r.Errs = append(r.Errs, config.OverrideKeys(base, overrides)...)
		s.init, _ = base.Lookup("model", "init").(string)
	}
	study.read(optional("name", &s.Name), optional("out", &s.Out),
		schema.Key{Name: "parallel", To: &s.Parallel, Is: schema.From(0, maxParallel), Default: 0},
		schema.Key{Name: "stop_minutes", To: &s.StopMinutes, Is: schema.Above(0, 1e6), Default: 1.0},
		schema.Key{Name: "checkpoints", To: &s.Checkpoints,
			Is: schema.OneOf(KeepCheckpoints, DeleteCheckpoints), Default: KeepCheckpoints},
		schema.Key{Name: "axes", To: new([]map[string]any), Doc: "each with a name and values"},
		optionalTables("exclude"), optionalTables("cells"), optionalTables("evaluations"),
		optionalTables("tables"), optionalTables("figures"))
	if s.Name == "" { // the default is the name of the file
		s.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	if strings.ContainsAny(s.Name, `/\`) || s.Name == "." || s.Name == ".." {
		study.wrong("name", s.Name, "a name without slashes")
	}
	s.Out = filepath.Clean(cmp.Or(s.Out, filepath.Join("studies", s.Name)))
	axes := readAxes(study.subtables("axes"))
	for _, o := range overrides {
		key := config.OverriddenKey(o)
		for _, a := range axes {
			if slices.Contains(a.keys, key) {
				r.Errs = append(r.Errs, &plaintoml.Error{File: "--set " + o, Key: key,
					Msg: fmt.Sprintf("the axis %q sets it in every cell", a.Name)})
			}
		}
	}
	plans := readCells(study, axes, study.subtables("exclude"), study.subtables("cells"))
	s.readEvaluations(study.subtables("evaluations"))
	s.readTables(study.subtables("tables"), axes, plans)
	if !study.has("tables") {
		s.Tables = []Table{defaultTable(axes)}
	}
	s.readFigures(study.subtables("figures"), axes, plans)
	if base != nil {
		s.Cells = r.resolve(base, plans, axes)
		s.checkAnswerable(r, study, axes)
		if len(r.Errs) == 0 {
			r.findSources(s.Cells, plans, axes)
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	for _, a := range axes {
		s.Axes = append(s.Axes, a.Axis)
	}
	return s, s.name()
}

const baseIs = "the path of a run's TOML file, or the table [base] with its keys"

// readBase reads the base configuration. If that is not possible, it reports why and returns nil.
func (s *Study) readBase(top *table, raw any) *plaintoml.Document {
	switch raw := raw.(type) {
	case nil: // its absence has been reported
	case map[string]any:
		return top.Table("base")
	case string:
		if !filepath.IsAbs(raw) {
			raw = filepath.Join(filepath.Dir(s.File), raw)
		}
		doc, _, err := plaintoml.ReadFile(raw, "a training run")
		if err == nil {
			return doc
		}
		if e, ok := errors.AsType[*plaintoml.Error](err); ok && e.Line == 0 { // about the whole file
			top.report("base", "want "+baseIs+"; it is relative to the study file", "%s: %s", e.File, e.Msg)
			return nil
		}
		top.Errs = append(top.Errs, problemsOf(err)...)
	default:
		top.wrong("base", raw, baseIs)
	}
	return nil
}

// hashDigits hexadecimal digits of a hash are enough to distinguish the cells of all studies.
const hashDigits = 12

// name sets the ID and directory of every cell. A cell whose configuration already has a directory
// keeps that directory, even if the cell's labels have changed.
func (s *Study) name() error {
	taken := map[string]string{}
	entries, err := os.ReadDir(filepath.Join(s.Out, rundir.StudyCells))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if i := strings.LastIndexByte(e.Name(), '-'); e.IsDir() && taken[e.Name()[i+1:]] == "" {
			taken[e.Name()[i+1:]] = e.Name()
		}
	}
	for i := range s.Cells {
		c := &s.Cells[i]
		c.Hash = c.hash()
		hash := c.Hash[:hashDigits]
		if taken[hash] == "" {
			taken[hash] = slug(s.Label(*c)) + "-" + hash
		}
		c.ID = taken[hash]
		c.Dir = filepath.Join(s.Out, rundir.StudyCells, c.ID)
		c.Run = c.Dir
		if c.Quantize != nil {
			c.Run = filepath.Join(c.Dir, rundir.StudyModel)
		}
	}
	return s.setRuns()
}

// maxSlug bounds a slug, so that a file name with the hash stays within the limits of file systems.
const maxSlug = 80

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9._]+`)

// slug converts text to a part of a file name. The slugs of different texts may be equal; the hash
// that follows distinguishes them.
func slug(text string) string {
	s := strings.Trim(notInFileNames.ReplaceAllString(safetext.ASCII(text), "-"), "-.")
	s = strings.Trim(s[:min(len(s), maxSlug)], "-.")
	return cmp.Or(s, "cell")
}

// problems collects the distinct configuration problems of cells, and the cells that have each.
type problems struct {
	errs  plaintoml.Errors
	cells [][]string
}

func (p *problems) add(err error, cell string) {
	for _, e := range problemsOf(err) {
		same := func(known *plaintoml.Error) bool { return known.Error() == e.Error() }
		i := slices.IndexFunc(p.errs, same)
		if i < 0 {
			i = len(p.errs)
			p.errs, p.cells = append(p.errs, e), append(p.cells, nil)
		}
		p.cells[i] = append(p.cells[i], cell)
	}
}

// list returns the problems of a study with the given number of cells. If only some cells have a
// problem, it arises from a combination of settings, so its message names the first of these cells.
func (p problems) list(cells int) plaintoml.Errors {
	for i, e := range p.errs {
		gap, others := " ", len(p.cells[i])-1
		if strings.Contains(e.Msg, "\n") {
			gap = "\n  "
		}
		switch {
		case others+1 == cells:
		case others == 0:
			e.Msg += gap + "(cell " + p.cells[i][0] + ")"
		default:
			e.Msg += gap + fmt.Sprintf("(cell %s and %d more)", p.cells[i][0], others)
		}
	}
	return p.errs
}

// problemsOf splits an error from host/train/config into its problems.
func problemsOf(err error) plaintoml.Errors {
	if all, ok := errors.AsType[plaintoml.Errors](err); ok {
		return all
	}
	if one, ok := errors.AsType[*plaintoml.Error](err); ok {
		return plaintoml.Errors{one}
	}
	return plaintoml.Errors{{Msg: err.Error()}}
}
