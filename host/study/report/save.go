package report

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Names of the files of a report, in its directory.
const (
	MarkdownFile = "report.md"
	CSVFile      = "report.csv"
	LaTeXFile    = "report.tex"
	PageFile     = "index.html"
	figuresDir   = "figures"
)

// Dir returns the directory of the report of a study that lives in the directory out.
func Dir(out string) string { return filepath.Join(out, "report") }

// Save writes the report into a directory and returns the names of its files there.
// Figures of an earlier report that this one does not have are removed.
func (r *Report) Save(dir vfs.Path) ([]string, error) {
	files, err := r.files()
	if err != nil {
		return nil, err
	}
	if err := checkOurs(dir); err != nil {
		return nil, err
	}
	if err := dir.Join(figuresDir).MkdirAll(); err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if err := atomicfile.WriteBytes(dir.Join(filepath.FromSlash(f.name)), f.content); err != nil {
			return nil, err
		}
		names = append(names, f.name)
	}
	return names, removeOthers(dir, names)
}

// reportStart begins the text of a report: the name of a study, and how much of it is done.
var reportStart = regexp.MustCompile(`^# [^\n]*\n\n\d+ of \d+ cells are done`)

// checkOurs fails for a directory without the text of a report, which is written first, if files of somebody else have the
// names of its other files.
func checkOurs(dir vfs.Path) error {
	text, err := dir.Join(MarkdownFile).ReadFile()
	if err == nil && reportStart.Match(text) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names := []string{MarkdownFile, CSVFile, LaTeXFile, PageFile}
	entries, err := dir.Join(figuresDir).ReadDir()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if pictureName.MatchString(e.Name()) {
			names = append(names, filepath.Join(figuresDir, e.Name()))
		}
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, atomicfile.CheckOurs(dir.Join(name), func(io.Reader) bool { return false }))
	}
	return errors.Join(errs...)
}

type file struct {
	name    string
	content []byte
}

// files are the contents of all files; the page, which is looked at first, comes last,
// when everything else is there.
func (r *Report) files() ([]file, error) {
	table, err := r.CSV()
	if err != nil {
		return nil, err
	}
	out := []file{{MarkdownFile, r.Markdown()}, {CSVFile, table}, {LaTeXFile, r.LaTeX()}}
	for _, f := range r.Figures {
		if f.Empty() {
			continue
		}
		for _, format := range []figure.Format{figure.SVG, figure.PNG} {
			var b bytes.Buffer
			if err := figure.Draw(&b, format, f.Picture, figure.Options{}); err != nil {
				return nil, err
			}
			out = append(out, file{f.file(string(format)), b.Bytes()})
		}
	}
	html, err := r.HTML()
	return append(out, file{PageFile, html}), err
}

// pictureName matches the names that reports give their pictures.
var pictureName = regexp.MustCompile(`^\d\d+-.*\.(svg|png)$`)

// removeOthers removes the pictures of an earlier report that do not belong to this one.
func removeOthers(dir vfs.Path, names []string) error {
	entries, err := dir.Join(figuresDir).ReadDir()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !slices.Contains(names, figuresDir+"/"+e.Name()) && pictureName.MatchString(e.Name()) {
			if err := dir.Join(figuresDir, e.Name()).Remove(); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
