package source

import (
	"strings"
	"testing"
)

// TestOtherFiles: a file of another format that is called JSONL is an error, and not a file of bad
// rows.
func TestOtherFiles(t *testing.T) {
	for content, want := range map[string]string{
		"<!DOCTYPE html><html><body>Sign in</body></html>": "HTML or XML",
		"\xef\xbb\xbf \n<?xml version=\"1.0\"?>":           "HTML or XML",
		"\xff\xfe{\x00":                                    "UTF-16",
		"\xfe\xff\x00{":                                    "UTF-16",
		"PK\x03\x04 and more":                              "zip",
		"BZh91AY&SY":                                       "bzip2",
		"PAR1 and so on":                                   "Parquet",
		"\x1f\x8b\x08 and so on":                           "gzip",
	} {
		_, err := rowsOf(ReadJSONL(strings.NewReader(content), "text"))
		if err == nil || err.Error() != "JSONL: this is "+want+", whatever it is called" {
			t.Errorf("%q: %v", content, err)
		}
	}
	for _, text := range []string{"", "a", "\x00\x01", `{"a": "<b>"}`, "ab", "\xef\xbb\xbf{}"} {
		if _, err := rowsOf(ReadObjects(strings.NewReader(text))); err != nil {
			t.Errorf("%q: %v", text, err)
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

// TestTrailingBytes: nothing but further members may follow what is compressed.
func TestTrailingBytes(t *testing.T) {
	text := []byte("a text\n")
	for _, kind := range []Compression{Gzip, Zstd} {
		in := append(pack(t, kind, text), "something else"...)
		if _, err := unpack(kind, in); err == nil || err.Error() != string(kind)+": damaged: something else follows what is compressed" {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
