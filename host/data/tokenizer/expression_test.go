package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

// TestPatterns compares ids with those of the original library, for patterns of published
// tokenizers, and others (testdata/generate.py).
func TestPatterns(t *testing.T) {
	var golden struct {
		Texts []string
		Cases []struct {
			Name         string
			PreTokenizer json.RawMessage `json:"pre_tokenizer"`
			IDs          [][]int32
		}
	}
	testfile.ReadJSON(t, "testdata/patterns.golden.json", &golden)
	if len(golden.Cases) < 25 || len(golden.Texts) < 30 {
		t.Fatalf("%d cases of %d texts", len(golden.Cases), len(golden.Texts))
	}
	for _, c := range golden.Cases {
		sections := map[string]string{"pre_tokenizer": string(c.PreTokenizer)}
		tok, err := ReadHuggingFace(edited(t, "gpt2", sections), nil)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for i, text := range golden.Texts {
			if got, err := tok.Encode(text); err != nil || !slices.Equal(got, c.IDs[i]) {
				t.Errorf("%s %s: %q:\n got %v %v\nwant %v", c.Name, c.PreTokenizer, text, got, err, c.IDs[i])
			}
		}
	}
}

// TestSplit checks what becomes of matches, as in the documentation of the original library.
func TestSplit(t *testing.T) {
	for _, c := range []struct{ behavior, want, inverted string }{
		{"Isolated", "the|-|final|-|-|countdown", "the|-|final|-|-|countdown"},
		{"Removed", "the|final|countdown", "-|-|-"},
		{"Contiguous", "the|-|final|--|countdown", "the|-|final|--|countdown"},
		{"MergedWithPrevious", "the-|final-|-|countdown", "the|-final|-|-countdown"},
		{"MergedWithNext", "the|-final|-|-countdown", "the-|final-|-|countdown"},
	} {
		for _, invert := range []bool{false, true} {
			dash := "-"
			step, err := newSplit(pattern{String: &dash}, c.behavior, invert)
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			if invert {
				want = c.inverted
			}
			if got := strings.Join(words(t, step, "the-final--countdown"), "|"); got != want {
				t.Errorf("%s, invert %v: %s, want %s", c.behavior, invert, got, want)
			}
		}
	}
}

// TestSlowPattern checks that a pattern which takes exponential or quadratic time is stopped with
// an error that does not repeat the text.
func TestSlowPattern(t *testing.T) {
	defer func(match, char time.Duration) {
		timePerMatch, timePerByte = match, char
	}(timePerMatch, timePerByte)
	timePerMatch, timePerByte = 200*time.Millisecond, 0
	for expr, text := range map[string]string{
		`(?:a|a?)+b`:   strings.Repeat("a", 64),
		`(?:a|b|ab)+c`: strings.Repeat("ab", 200),
		`(?=.*z)a|.`:   strings.Repeat("b", 1<<17),
	} {
		find, err := compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err = find.cut("Isolated", false)(text, true, func(string) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "takes too long") || len(err.Error()) > 500 {
			t.Errorf("%s: %.600v", expr, err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("%s was stopped after %v", expr, took)
		}
	}
}

// FuzzPattern checks that no pattern makes the tokenizer panic, and that the parts make the text.
func FuzzPattern(f *testing.F) {
	for expr := range wordPatterns {
		f.Add(expr, "I'LL'x don't  3.14\r\n\n ½a\u3000 ")
	}
	f.Add(`(?<=a)b++|[\w\-]{2,3}?(?i:'s)\p{^Han}\x{1F642}`, "ab🙂's")
	f.Fuzz(func(t *testing.T, expr, text string) {
		if !utf8.ValidString(text) || len(text) > 50 || len(expr) > 50 || strings.Contains(expr, "{") {
			return
		}
		find, err := compile(expr)
		if err != nil {
			return
		}
		var got strings.Builder
		err = find.cut("Isolated", false)(text, true, func(part string) error {
			got.WriteString(part)
			return nil
		})
		if err == nil && got.String() != text {
			t.Fatalf("%q cuts %q to %q", expr, text, &got)
		}
	})
}
