package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
)

const hostile = `</script><script>alert("1")</script><img src=x onerror='a()'>` + "\x00{{.}}"

// full returns a report with hostile text in every field.
func full() *Report {
	axis := study.Axis{Name: hostile, Labels: []string{hostile}}
	curve := figure.Series{Name: hostile, Line: figure.Solid,
		Points: []figure.Point{{X: 1, Y: 1}, {X: 2, Y: math.NaN()}}}
	picture := &figure.Chart{X: figure.Axis{Label: hostile}, Y: figure.Axis{Label: hostile},
		Series: []figure.Series{curve}}
	table := Table{
		Table: study.Table{
			Title: hostile, Metric: hostile, Rows: []string{hostile}, Columns: []string{hostile},
			Over:   []string{hostile},
			Better: hostile, Baseline: map[string]string{hostile: hostile}, Format: "%g " + hostile,
		},
		RowLabels: [][]string{{hostile}}, ColumnLabels: [][]string{{hostile}, {hostile + "2"}},
		Entries: [][]Entry{{
			{Sample: study.Sample{N: 1, Mean: math.Inf(-1), SD: math.NaN()}, Expected: 2, Mark: Best,
				Choice: &Choice{Label: hostile}},
			{Sample: study.Sample{N: 1, Mean: 1, SD: math.NaN()}, Expected: 1,
				Difference: &study.Difference{N: 1, Mean: 1, Low: math.NaN(), High: math.NaN()}},
		}},
		axes: []study.Axis{axis}, common: 1, differences: "%g",
	}
	return &Report{
		Name: hostile, Axes: []study.Axis{axis}, States: map[string]int{}, Tables: []Table{table},
		Figures: []Figure{{Title: hostile, Kind: study.Curves, Notes: []string{hostile},
			Picture: picture}, {Title: "empty"}},
		Runs: []Run{
			{ID: hostile, Labels: []string{hostile}, State: study.Failed, Err: hostile,
				Settings: []string{hostile}, Config: hostile,
				Summary: map[string]float64{"val_loss": 1, hostile: 2}, Provenance: 1},
			{ID: hostile, Labels: []string{hostile}, State: study.State(hostile)},
		},
		Provenances: []string{hostile},
	}
}

func rendered(t testing.TB, r *Report) []byte {
	t.Helper()
	html, err := r.HTML()
	if err != nil {
		t.Fatal(err)
	}
	return html
}

// TestTextsAreText checks that texts add no elements to the page, whatever they contain.
func TestTextsAreText(t *testing.T) {
	html := rendered(t, full())
	for _, bad := range []string{"<script>alert", "<img", "onerror='a()'>\x00", "\x00"} {
		if bytes.Contains(html, []byte(bad)) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if starts, ends := bytes.Count(html, []byte("<script")), bytes.Count(html,
		[]byte("</script>")); starts != 2 || ends != 2 {
		t.Errorf("%d scripts begin and %d end, want one of values and one of the page", starts, ends)
	}
	plain := bytes.Count(html, []byte("onerror=&#39;a()&#39;&gt;"))
	if plain < 20 {
		t.Errorf("only %d texts were found", plain)
	}
}

// TestWellFormed checks that elements are nested properly, and that links lead to unique elements.
func TestWellFormed(t *testing.T) {
	html := string(rendered(t, full()))
	html = regexp.MustCompile(`(?s)<(style|script)\b[^>]*>.*?</(style|script)>`).
		ReplaceAllString(html, "")
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

// TestNothingIsLoaded checks that the page loads nothing, and that its policy forbids it.
func TestNothingIsLoaded(t *testing.T) {
	html := string(rendered(t, full()))
	html = strings.ReplaceAll(html, "http://www.w3.org/2000/svg", "") // the namespace of SVG
	html = strings.ReplaceAll(html, "http://www.w3.org/1999/xlink", "")
	// a comment with the origin of uPlot
	html = strings.Replace(html, "/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "", 1)
	for _, m := range regexp.MustCompile(`(?i)(https?:|//[a-z]|@import|url\()[^\s]{0,30}`).
		FindAllString(html, -1) {
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
	if html := rendered(t, &Report{Name: "empty"}); !bytes.Contains(html, []byte("<h1>empty</h1>")) {
		t.Error("the title is missing")
	}
}
