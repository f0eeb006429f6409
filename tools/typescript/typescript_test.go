package typescript_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/tools/typescript"
)

func Example() {
	var screen typescript.Screen
	if err := screen.Play("\x1b[1m$ cage train\x1b[0m\r\nstep 1 of 3\x1b[K\rstep 3\x1b[K\r\ndone\r\n"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(strings.Join(screen.Lines(), "\n"))
	// Output:
	// $ cage train
	// step 3
	// done
}

func TestPlay(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"a line over another", "long line\rshort", []string{"shortline"}},
		{"erased", "long line\rshort\x1b[K", []string{"short"}},
		{"a page in place of another", "a\r\nb\r\nc\r\n\r\x1b[3A\x1b[Jd\r\n", []string{"d"}},
		{"tabs", "a\tb\r\n1234567\tc", []string{"a       b", "1234567 c"}},
		{"letters of two bytes", "λ 0.5\r\x1b[Kλ", []string{"λ"}},
		{"a hidden cursor", "\x1b[?25la\x1b[?25h\r\n\r\n", []string{"a"}},
		{"nothing", "", nil},
		{"up beyond the first line", "a\x1b[9A\rb", []string{"b"}},
	} {
		var s typescript.Screen
		if err := s.Play(c.text); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, s.Lines()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestUnknown: what the screen does not know is an error, and no wrong picture.
func TestUnknown(t *testing.T) {
	for _, text := range []string{"\x1b[31mred", "a\x1b]0;title\a", "\x1b[2J", "\x1b[H", "\x1b[", "\a", "\xff", "\x1b[1K"} {
		var s typescript.Screen
		if err := s.Play("one\r\n" + text); err == nil || !strings.HasPrefix(err.Error(), "line 2 of the screen: ") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

// TestSVG: the picture is well-formed, has every word at its column, and both colour schemes.
func TestSVG(t *testing.T) {
	var s typescript.Screen
	if err := s.Play("\x1b[1m$ a <b> & c\x1b[0m\r\nrun   val ppl\r\n  x y  \r\n"); err != nil {
		t.Fatal(err)
	}
	picture := s.SVG("A <title>", 20)
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
	if err := xml.Unmarshal([]byte(picture), &got); err != nil {
		t.Fatal(err)
	}
	want := []text{
		{"bold", "18.0", "43", "$ a <b> & c"},
		{"", "18.0", "61", "run"}, {"", "65.0", "61", "val ppl"},
		{"", "33.7", "79", "x y"},
	}
	if diff := cmp.Diff(want, got.Texts); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
	if got.Title != "A <title>" || !strings.Contains(got.Style, "prefers-color-scheme: dark") {
		t.Errorf("title %q, style %q", got.Title, got.Style)
	}
}

func FuzzPlay(f *testing.F) {
	f.Add("a\r\n\x1b[1mb\x1b[0m\x1b[K\x1b[2A\x1b[J\tc\b")
	f.Add("\x1b[999999999999999999999A\x1b[99A")
	f.Fuzz(func(t *testing.T, text string) {
		var s typescript.Screen
		if s.Play(text) != nil {
			return
		}
		for d := xml.NewDecoder(strings.NewReader(s.SVG(text, 1))); ; {
			if _, err := d.Token(); err == io.EOF {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}
