package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
)

const hostile = `</script><script>alert("1")</script><img src=x onerror='a()'>` + "\x00{{.}}"

func number(x float64) *float64 { return &x }

// full has a hostile text in every place for one.
func full() webPage {
	table := webTable{
		Title: hostile, Notes: []string{hostile, hostile},
		Head: [][]heading{{{Label: hostile, Columns: 1, Text: true}, {Label: hostile, Columns: 2}}, {{Label: hostile, Columns: 1}, {Label: "a", Columns: 1}, {Label: "b", Columns: 1}}},
		Rows: [][]webCell{{{Text: hostile, Head: true, Link: "run-1", Sort: sortKey(0)}, {Text: hostile, Note: hostile, Bold: true, Sort: sortKey(math.Inf(-1))}, {Text: hostile, Left: true}}},
	}
	below := table
	table.Below = &below
	curve := Curve{Name: hostile, X: []float64{1, 2}, Y: []*float64{number(1), nil}, Low: []*float64{}, High: []*float64{}}
	return webPage{
		Title: hostile, Summary: hostile, Tables: []webTable{table},
		Figures: []webFigure{
			{Title: hostile, SVG: []byte("<?xml version=\"1.0\"?>\n<svg><text>1</text></svg>\n"), Notes: []string{hostile}, Chart: &Chart{X: hostile, Y: hostile, Series: []Curve{curve}}},
			{Title: "empty"},
		},
		Failures: []webFailure{{Name: hostile, Err: hostile}},
		Runs: webRuns{
			Table:       table,
			Details:     []webDetail{{ID: "run-1", Name: hostile, State: hostile, Settings: []string{hostile}, Config: hostile, Provenance: 0}, {ID: "run-2", Provenance: -1}},
			Provenances: []string{hostile},
		},
	}
}

func rendered(t testing.TB, p webPage) []byte {
	t.Helper()
	html, err := render(p)
	if err != nil {
		t.Fatal(err)
	}
	return html
}

// Whatever a text says, the page has the elements of the layout and no others.
func TestTextsAreText(t *testing.T) {
	html := rendered(t, full())
	for _, bad := range []string{"<script>alert", "<img", "onerror='a()'>\x00", "\x00"} {
		if bytes.Contains(html, []byte(bad)) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if starts, ends := bytes.Count(html, []byte("<script")), bytes.Count(html, []byte("</script>")); starts != 2 || ends != 2 {
		t.Errorf("%d scripts begin and %d end, want one of values and one of the page", starts, ends)
	}
	plain := bytes.Count(html, []byte("onerror=&#39;a()&#39;&gt;"))
	if plain < 20 {
		t.Errorf("only %d texts were found", plain)
	}
}

// Elements are closed in the order in which they were opened.
func TestWellFormed(t *testing.T) {
	html := string(rendered(t, full()))
	html = regexp.MustCompile(`(?s)<(style|script)\b[^>]*>.*?</(style|script)>`).ReplaceAllString(html, "")
	html = regexp.MustCompile(`<(meta|link|input)\b[^>]*>`).ReplaceAllString(html, "")
	html = strings.TrimPrefix(html, "<!DOCTYPE html>")
	dec := xml.NewDecoder(strings.NewReader(html))
	dec.Entity = xml.HTMLEntity
	ids := map[string]bool{}
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "id" && ids[a.Value] {
					t.Errorf("two elements are called %s", a.Value)
				}
				ids[a.Value] = ids[a.Value] || a.Name.Local == "id"
			}
		}
	}
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if !ids[link[1]] {
			t.Errorf("the link to %s leads nowhere", link[1])
		}
	}
}

// The page asks for nothing outside itself, and forbids it.
func TestNothingIsLoaded(t *testing.T) {
	html := string(rendered(t, full()))
	html = strings.ReplaceAll(html, "http://www.w3.org/2000/svg", "")                         // the name of a language
	html = strings.Replace(html, "/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "", 1) // where it is from
	for _, m := range regexp.MustCompile(`(?i)(https?:|//[a-z]|@import|url\()[^\s]{0,30}`).FindAllString(html, -1) {
		t.Errorf("the page mentions %q", m)
	}
	if !strings.Contains(html, `content="default-src 'none';`) {
		t.Error("the page forbids nothing")
	}
}

func TestKey(t *testing.T) {
	if sortKey(math.NaN()) != nil || *sortKey(2) != 2 {
		t.Error("keys are not those of numbers")
	}
}

func TestEmptyPage(t *testing.T) {
	if html := rendered(t, webPage{Title: "empty"}); !bytes.Contains(html, []byte("<h1>empty</h1>")) {
		t.Error("the title is missing")
	}
}

func Example() {
	html, err := render(webPage{
		Title: "bits",
		Tables: []webTable{{
			Title: "Validation loss",
			Head:  [][]heading{{{Label: "bits", Columns: 1, Text: true}, {Label: "CAGE", Columns: 1}}},
			Rows:  [][]webCell{{{Text: "4", Head: true, Sort: sortKey(4)}, {Text: "2.055 ± 0.092", Sort: sortKey(2.055)}}},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(regexp.MustCompile(`<td.*</td>`).FindString(string(html)))
	// Output: <td data-key="2.055">2.055 ± 0.092</td>
}
