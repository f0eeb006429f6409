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

// reportFile is the path of the report in the directory of a study.
const reportFile = "report/index.html"

// reportPolicy lets a report sort tables and draw charts, which it needs, and nothing else: anyone
// may have written the file, so it is treated as a page of another site that can load nothing from
// these pages or any network. It can still navigate the browser to other sites.
const reportPolicy = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; " +
	"script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

// studiesPage is the data of the template studies.
type studiesPage struct {
	Title   string
	Studies []studyView
}

type studyView struct {
	Study        string
	Link         string // link to the list of its runs
	Begun, Done  int    // numbers of cells
	Report, Made string // link to its report and time of its writing; "" if it has none
}

// studyOf returns the directory of the study that a run belongs to; "" if it belongs to none.
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
	for _, run := range list { // sorted, so that the runs of a study are adjacent
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

// report serves the report of a study that `cage study report` has written.
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
		return refuse(http.StatusNotFound, "%s has no report", dir) // or it is a link to a file outside
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
	w.Header().Del("Cross-Origin-Opener-Policy") // an error in a sandbox, by the HTML standard
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", info.ModTime(), file) // streams the file
	return nil
}
