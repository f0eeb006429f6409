package report

import (
	"net/url"
	"path/filepath"

	"github.com/cage-qat/cage/host/study/report/page"
)

// Contents returns a page with the tables of several reports and links to their pages.
// dirs are the directories of the reports; dir is the directory of the contents.
func Contents(title string, reports []*Report, dirs []string, dir string) ([]byte, error) {
	c := page.Contents{Title: title}
	dir, err := filepath.Abs(dir) // there is no way from an absolute path to a relative one
	if err != nil {
		return nil, err
	}
	for i, r := range reports {
		path, err := filepath.Abs(filepath.Join(dirs[i], PageFile))
		if err != nil {
			return nil, err
		}
		link, err := filepath.Rel(dir, path)
		if err != nil {
			return nil, err
		}
		e := page.Entry{Name: r.Name, Summary: r.Progress(), Link: (&url.URL{Path: filepath.ToSlash(link)}).String()}
		for j := range r.Tables {
			e.Tables = append(e.Tables, r.Tables[j].page(r))
		}
		c.Studies = append(c.Studies, e)
	}
	return page.RenderContents(c)
}
