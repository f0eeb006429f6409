package page

import "bytes"

// Contents is a page that leads to the pages of several studies, with their tables.
type Contents struct {
	Title   string
	Studies []Entry
}

// Entry is a study in the contents.
type Entry struct {
	Name    string
	Summary string // a sentence below the name
	Link    string // to the study's page, relative to the contents
	Tables  []Table
}

// RenderContents writes the page.
func RenderContents(c Contents) ([]byte, error) {
	var b bytes.Buffer
	err := layout.ExecuteTemplate(&b, "contents.gohtml", c)
	return b.Bytes(), err
}
