package main

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSVG: the picture is well-formed, has every word at its column, and both colour schemes.
func TestSVG(t *testing.T) {
	list, err := lines("$ a <b> & c\nrun   val ppl\n  x y  \n\tλ\n\n")
	if err != nil {
		t.Fatal(err)
	}
	type text struct {
		Class string `xml:"class,attr"`
		X     string `xml:"x,attr"`
		Y     string `xml:"y,attr"`
		Text  string `xml:",chardata"`
	}
	var got struct {
		Title string `xml:"title"`
		Style string `xml:"style"`
		Texts []text `xml:"text"`
	}
	if err := xml.Unmarshal([]byte(picture(list, "A <title>")), &got); err != nil {
		t.Fatal(err)
	}
	want := []text{
		{"bold", "18.0", "43", "$ a <b> & c"},
		{"", "18.0", "61", "run"}, {"", "65.0", "61", "val ppl"},
		{"", "33.7", "79", "x y"},
		{"", "80.6", "97", "λ"},
	}
	if diff := cmp.Diff(want, got.Texts); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
	if got.Title != "A <title>" || !strings.Contains(got.Style, "prefers-color-scheme: dark") {
		t.Errorf("title %q, style %q", got.Title, got.Style)
	}
}

// TestControlCharacters: what is no character is an error, and no wrong picture.
func TestControlCharacters(t *testing.T) {
	for _, text := range []string{"\x1b[31mred", "a\rb", "\a", "\xff"} {
		if _, err := lines("one\n" + text); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
