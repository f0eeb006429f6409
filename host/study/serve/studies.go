package serve

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// reportFile is the report in the directory of a study.
const reportFile = "report/index.html"

// reportPolicy lets a report do what it needs, which is to sort and draw, and nothing else: it is a
// file that anybody may have written, so that it counts as a page of another site, which loads
// nothing from these pages or any network. What it can still do is lead the browser elsewhere.
const reportPolicy = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; " +
	"script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

// studiesPage is what the template studies shows.
type studiesPage struct {
	Title   string
	Studies []studyView
}

type studyView struct {
	Study        string
	Link         string // leads to its runs
	Begun, Done  int    // cells
	Report, Made string // where its report is and when it was made, "" for none
}

// studyOf is the directory of the study whose cell a run is, "" for other runs.
func studyOf(r *rundir.Run) string {
	cells := filepath.Dir(r.Dir)
	if filepath.Base(r.Dir) == rundir.StudyModel && filepath.Base(cells) != rundir.StudyCells {
		cells = filepath.Dir(cells)
	}
	if filepath.Base(cells) != rundir.StudyCells {
		return ""
	}
	dir := filepath.Dir(cells)
	if there, err := vfs.At(dir).Join(rundir.StudyFile).Exists(); err != nil || !there {
		return ""
	}
	return dir
}

func (s *Server) studies(w http.ResponseWriter, r *http.Request) error {
	list, err := s.runs()
	if err != nil {
		return err
	}
	p := studiesPage{Title: "Studies"}
	for _, run := range list { // which is sorted, so that runs of a study are neighbours
		dir := studyOf(run)
		if dir == "" {
			continue
		}
		if n := len(p.Studies); n == 0 || p.Studies[n-1].Study != dir {
			cells := "run~" + filepath.Join(dir, rundir.StudyCells)
			v := studyView{Study: dir, Link: "/?" + url.Values{"q": {cells}}.Encode()}
			if info, err := os.Stat(filepath.Join(dir, reportFile)); err == nil {
				v.Report, v.Made = "/report?"+url.Values{"study": {dir}}.Encode(), moment(info.ModTime(), time.Now())
			}
			p.Studies = append(p.Studies, v)
		}
		v := &p.Studies[len(p.Studies)-1]
		v.Begun++
		if run.State == rundir.Done {
			v.Done++
		}
	}
	if r.URL.Query().Get("part") != "" {
		return show(w, r, "studies", p)
	}
	return show(w, r, "studies.gohtml", p)
}

// report shows the report of a study as `cage study report` has written it.
func (s *Server) report(w http.ResponseWriter, r *http.Request) error {
	list, err := s.runs()
	if err != nil {
		return err
	}
	dir := r.URL.Query().Get("study")
	if dir == "" || !slices.ContainsFunc(list, func(run *rundir.Run) bool { return studyOf(run) == dir }) {
		return refuse(http.StatusNotFound, "there is no study %q", dir)
	}
	path := filepath.Join(dir, reportFile)
	real, err := filepath.EvalSymlinks(path)
	inside, err2 := filepath.EvalSymlinks(dir)
	if err != nil || err2 != nil || !strings.HasPrefix(real, inside+string(filepath.Separator)) {
		return refuse(http.StatusNotFound, "%s has no report", dir) // or a link to a file elsewhere
	}
	file, err := vfs.OpenRegular(path)
	if err != nil {
		return refuse(http.StatusNotFound, "%s has no report that can be shown", dir)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Security-Policy", reportPolicy)
	w.Header().Del("Cross-Origin-Opener-Policy") // with a sandbox it is an error, by the HTML standard
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", info.ModTime(), file) // in small pieces, however large it is
	return nil
}
