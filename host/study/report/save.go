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

// Names of the files in a report's directory.
const (
	MarkdownFile = "report.md"
	LaTeXFile    = "report.tex"
	PageFile     = "index.html"
	figuresDir   = "figures"
)

// Dir returns the directory of the report of a study whose directory is out.
func Dir(out string) vfs.Path { return vfs.At(out).Join("report") }

// Save writes the report to a directory and returns the names of the written files. The page, which
// readers open first, is written last, after the files that it refers to. Figures that an earlier
// report had and this one does not have are removed.
func (r *Report) Save(dir vfs.Path) (names []string, err error) {
	var contents [][]byte
	add := func(name string, content []byte) {
		names, contents = append(names, name), append(contents, content)
	}
	add(MarkdownFile, r.Markdown())
	add(LaTeXFile, r.LaTeX())
	for _, f := range r.Figures {
		if f.Empty() {
			continue
		}
		for _, format := range figure.Formats {
			var b bytes.Buffer
			if err := figure.Draw(&b, format, f.Picture, figure.Options{}); err != nil {
				return nil, err
			}
			add(f.file(string(format)), b.Bytes())
		}
	}
	page, err := r.HTML()
	if err != nil {
		return nil, err
	}
	add(PageFile, page)

	earlier, err := earlierFiles(dir)
	if err != nil {
		return nil, err
	}
	at := func(name string) vfs.Path { return dir.Join(filepath.FromSlash(name)) }
	for _, name := range names {
		ours := func(io.Reader) bool { return slices.Contains(earlier, name) }
		err = errors.Join(err, atomicfile.CheckOurs(at(name), ours))
	}
	if err != nil {
		return nil, err
	}
	if err := dir.Join(figuresDir).MkdirAll(); err != nil {
		return nil, err
	}
	// Obsolete files are removed first, because the new report no longer lists them.
	for _, name := range earlier {
		if !slices.Contains(names, name) {
			if err := at(name).Remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	for i, name := range names {
		if err := atomicfile.WriteBytes(at(name), contents[i]); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// reportStart matches the beginning of a report in Markdown: the study's name and its progress.
var reportStart = regexp.MustCompile(`^# [^\n]*\n\n\d+ of \d+ cells are done`)

// pictureLink matches a link to a picture in a report in Markdown.
var pictureLink = regexp.MustCompile(
	`(?m)^!?\[.*\]\((` + figuresDir + `/\d\d+-[^/()]*)\.(svg|pdf)\)$`)

// earlierFiles returns the files of the report that is in a directory, according to its Markdown
// file, which is written first. It returns none if there is no report.
func earlierFiles(dir vfs.Path) (names []string, err error) {
	text, err := dir.Join(MarkdownFile).ReadFile()
	if errors.Is(err, fs.ErrNotExist) || err == nil && !reportStart.Match(text) {
		return nil, nil
	}
	names = []string{MarkdownFile, LaTeXFile, PageFile}
	for _, m := range pictureLink.FindAllSubmatch(text, -1) {
		name, format := string(m[1]), string(m[2])
		if names = append(names, name+"."+format); format == "svg" {
			names = append(names, name+".png")
		}
	}
	return names, err
}
