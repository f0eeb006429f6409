package study

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/transliterate"
)

// mostParallel bounds study.parallel.
const mostParallel = 4096

// Load reads and checks the study file at path and resolves every cell. It looks into the
// study's directory only for the names of cells that already exist.
//
// The error is a *[plaintoml.Error] if the file cannot be read or parsed, otherwise
// [plaintoml.Errors] with every problem found, including those of the cells' configurations.
func Load(path string) (*Study, error) {
	doc, text, err := plaintoml.ReadFile(path, "a study")
	if err != nil {
		return nil, err
	}
	return load(path, text, doc)
}

// Parse is [Load] on text that has already been read. The path is the name used in
// messages, and a base file is relative to it.
func Parse(path string, text []byte) (*Study, error) {
	doc, err := plaintoml.Parse(path, text)
	if err != nil {
		return nil, err
	}
	return load(path, text, doc)
}

func load(path string, text []byte, doc *plaintoml.Document) (*Study, error) {
	s := &Study{File: path, text: text}
	r := &reader{doc: doc, dir: filepath.Dir(path)}
	top := &table{reader: r, values: doc.Values()}
	if !top.has("base") && !top.has("study") && (top.has("train") || top.has("model")) {
		e := doc.ErrorAt("", "describes a training run, not a study")
		e.Hint = "want [study] and base, the path of such a file, or: cage train " + path
		return nil, e
	}
	base := s.readBase(top)
	study := top.table("study")
	if study == nil {
		if !top.has("study") {
			r.report("study", "want the table [study]", "missing")
		}
		study = &table{reader: r, path: "study"}
	}
	top.finish()
	s.readNames(study)
	axes := readAxes(study)
	plans := readCells(study, axes)
	s.readEvaluations(study)
	s.readTables(study, axes, plans)
	s.readFigures(study, axes, plans)
	study.finish()
	if base != nil {
		s.Cells = r.resolve(base, plans, axes)
		s.checkAsked(r, study, axes)
		if len(r.errs) == 0 {
			if err := r.findSources(s.Cells, plans, axes); err != nil {
				return nil, err
			}
		}
	}
	if len(r.errs) > 0 {
		r.errs.Sort()
		return nil, r.errs
	}
	for _, a := range axes {
		s.Axes = append(s.Axes, Axis{a.name, a.labels()})
	}
	return s, s.name()
}

// readBase reads the base configuration, nil when that is not possible.
func (s *Study) readBase(top *table) *plaintoml.Document {
	const want = `want the path of a run's TOML file, or the table [base] with its keys`
	switch raw := top.get("base").(type) {
	case nil:
		top.report("base", want, "missing")
	case map[string]any:
		s.Base = s.File
		return top.doc.Table("base")
	case string:
		s.Base = raw
		if !filepath.IsAbs(raw) {
			s.Base = filepath.Join(filepath.Dir(s.File), raw)
		}
		doc, _, err := plaintoml.ReadFile(s.Base, "a training run")
		if err == nil {
			return doc
		}
		if raw == "" || errors.Is(err, fs.ErrNotExist) {
			top.report("base", want+"; it is relative to the study file", "there is no file %s", s.Base)
			return nil
		}
		if e, ok := errors.AsType[*plaintoml.Error](err); ok && e.Line == 0 { // of the whole file
			top.report("base", want, "%s", e.File+": "+e.Msg)
			return nil
		}
		top.errs = append(top.errs, problemsOf(err)...)
	default:
		top.wrong("base", raw, strings.TrimPrefix(want, "want "))
	}
	return nil
}

// readNames reads the keys of [study] that are no tables.
func (s *Study) readNames(t *table) {
	file := filepath.Base(s.File)
	s.Name = strings.TrimSuffix(file, filepath.Ext(file))
	if name := t.text("name"); name != "" {
		s.Name = name
	}
	if strings.ContainsAny(s.Name, `/\`) || s.Name == "." || s.Name == ".." {
		t.wrong("name", s.Name, "a name without slashes")
	}
	s.Out = filepath.Join("studies", s.Name)
	if out := t.text("out"); out != "" {
		s.Out = filepath.Clean(out)
	}
	s.Parallel = t.count("parallel", mostParallel)
}

// hashDigits are enough to tell the cells of all studies apart.
const hashDigits = 12

// name gives every cell its ID and directory. A cell whose configuration has a directory
// already keeps it, whatever its labels are now.
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
		hash, err := c.hash()
		if err != nil {
			return err
		}
		hash = hash[:hashDigits]
		if taken[hash] == "" {
			taken[hash] = slug(s.Label(*c)) + "-" + hash
		}
		c.ID = taken[hash]
		c.Dir = filepath.Join(s.Out, rundir.StudyCells, c.ID)
	}
	return s.placeRuns()
}

// longestSlug leaves room for the hash in a file name, which some systems limit.
const longestSlug = 80

var unfit = regexp.MustCompile(`[^A-Za-z0-9._]+`)

// slug makes text fit for a file name. Names that it makes alike are told apart by the
// hash behind them.
func slug(text string) string {
	s := strings.Trim(unfit.ReplaceAllString(transliterate.ASCII(text), "-"), "-.")
	if len(s) > longestSlug {
		s = strings.Trim(s[:longestSlug], "-.")
	}
	if s == "" {
		return "cell"
	}
	return s
}
