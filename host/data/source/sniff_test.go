package source

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"
)

// in16 is a text in UTF-16, of either byte order.
func in16(text string, big bool) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		low, high := byte(unit), byte(unit>>8)
		if big {
			low, high = high, low
		}
		out = append(out, low, high)
	}
	return out
}

// others are files that are not what their names say, with what is said of each.
var others = map[string]string{
	"<!DOCTYPE html><html><body>Sign in</body></html>":                  "this is HTML or XML, whatever it is called: a server may have sent it",
	"\xef\xbb\xbf \n<?xml version=\"1.0\"?><Error>AccessDenied</Error>": "this is HTML or XML",
	"\xff\xfe" + string(in16(`{"text": "a"}`, false)):                   "this is UTF-16, whatever it is called: convert it to UTF-8",
	"\xfe\xff" + string(in16(`{"text": "a"}`, true)):                    "this is UTF-16",
	string(in16(`{"text": "a"}`, false)):                                "this is UTF-16",
	string(in16(`{"text": "a"}`, true)):                                 "this is UTF-16",
	"PK\x03\x04 and more":                                               "this is zip, whatever it is called: unpack it",
	"BZh91AY&SY":                                                        "this is bzip2",
	"%PDF-1.7 and more":                                                 "this is PDF",
}

// TestOtherFiles: what a file is, if it is not what its name says, is said in every format.
func TestOtherFiles(t *testing.T) {
	more := map[string]string{"PAR1 and so on": "this is Parquet, whatever it is called: call it .parquet", "\x1f\x8b\x08 and so on": "this is gzip, whatever it is called: call it .gz"}
	for content, want := range others {
		more[content] = want
	}
	for content, want := range more {
		in := []byte(content)
		read := map[string]func() error{
			"JSONL":   func() error { _, err := rowsOf(ReadJSONL(bytes.NewReader(in), "text")); return err },
			"Parquet": func() error { _, err := rowsOf(ReadParquet(bytes.NewReader(in), int64(len(in)), "text")); return err },
			"gzip":    func() error { _, err := unpack(Gzip, in); return err },
			"zstd":    func() error { _, err := unpack(Zstd, in); return err },
		}
		for format, try := range read {
			err := try()
			if _, damaged := errors.AsType[*DamagedError](err); !damaged {
				t.Errorf("%q as %s: %v", content, format, err)
			} else if strings.Contains(strings.ToLower(want), "this is "+strings.ToLower(format)+",") {
				continue
			} else if !strings.HasPrefix(err.Error(), format+": "+want) {
				t.Errorf("%q as %s: %v, want %s", content, format, err, want)
			}
		}
	}
	for _, text := range []string{"", "a", "\x00\x00\x00\x00", "\x00\x01\x02\x03", `{"a": "<b>"}`, "ab", "\xef\xbb\xbf{}", "a\x00\x00b", "é\x00"} {
		if kind := Sniff([]byte(text)); kind != "" {
			t.Errorf("%q is %s", text, kind)
		}
	}
}

// TestHintsOfJSON: a line that is not what it should be is told so, and another field is only
// proposed where there may be one.
func TestHintsOfJSON(t *testing.T) {
	for _, c := range []struct {
		line, want string
		field      bool
	}{
		{`{"other": "x"}`, `no field "text"`, true},
		{`{"text": 3}`, "is a number", true},
		{`{"text": null}`, "is null", true},
		{`{"text": "x", "loss": NaN}`, "not JSON: at byte 23: invalid character 'N' at start of value; NaN and Infinity are not JSON: write null", false},
		{`{"loss": -Infinity, "text": "x"}`, "; NaN and Infinity are not JSON: write null", false},
		{`{"list": [1,Infinity], "text": "x"}`, "; NaN and Infinity are not JSON: write null", false},
		{`{"text": NULL}`, "not JSON: at byte 10: invalid character 'N' at start of value", false},
		{`[{"text": "x"}]`, `an array, want an object with the field "text"; jq -c '.[]' divides`, false},
		{"{", "want an object in one line, as jq -c . writes it", false},
		{`{"text": "x\u0000"}`, "the text has a zero byte", false},
	} {
		for row, err := range ReadJSONL(strings.NewReader(c.line), "text") {
			if err != nil || row.Err == nil || !strings.Contains(row.Err.Problem, c.want) || row.Err.Field != c.field || strings.Contains(c.line, "NULL") && strings.Contains(row.Err.Problem, "Infinity") {
				t.Errorf("%s: %+v, %v, want %s", c.line, row.Err, err, c.want)
			}
		}
	}
}

// TestZerosBehindGzip: zeros may follow the members of a file, and nothing else.
func TestZerosBehindGzip(t *testing.T) {
	text := []byte("a text\n")
	packed := pack(t, Gzip, text)
	zeros := make([]byte, 100_000)
	for name, c := range map[string]struct {
		in   []byte
		want string
	}{
		"at the end":      {append(bytes.Clone(packed), zeros...), "a text\n"},
		"one":             {append(bytes.Clone(packed), 0), "a text\n"},
		"between members": {bytes.Join([][]byte{packed, packed, packed}, zeros[:511]), "a text\na text\na text\n"},
	} {
		if got, err := unpack(Gzip, c.in); err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, kind := range []Compression{Gzip, Zstd} {
		in := append(pack(t, kind, text), "something else"...)
		if _, err := unpack(kind, in); err == nil || err.Error() != string(kind)+": damaged: something else follows what is compressed" {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
