package plainjson_test

import (
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/plainjson"
)

type inside struct {
	Count int            `json:"count"`
	Sizes []uint8        `json:"sizes"`
	By    map[string]int `json:"by"`
}

type file struct {
	Name string   `json:"name"`
	Rate *float64 `json:"rate"`
	On   bool     `json:"on"`
	In   inside   `json:"in"`
	List []inside `json:"list"`
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "not valid JSON: it is empty",
		" \n":                            "not valid JSON: it is empty",
		"[]":                             "found an array, want an object",
		"null x":                         `not valid JSON: invalid character 'x' after top-level value (byte 6)`,
		`{"name": 1}`:                    "name: found a number, want a string",
		`{"rate": "3"}`:                  "rate: found a string, want a number",
		`{"on": "yes"}`:                  "on: found a string, want true or false",
		"{\n\"in\": {\"count\": 2.5}\n}": "line 2: in.count: found the number 2.5, want an integer",
		`{"in": {"sizes": [-1]}}`: "in.sizes.0: found the number -1, want an integer that is " +
			"not negative",
		`{"in": {"by": []}}`:          "in.by: found an array, want an object",
		`{"in": {"by": {"x": true}}}`: "in.by.x: found true or false, want an integer",
		"{\"list\":\n[\n{},\n{\"count\": \"two\"}]}": "line 4: list.1.count: found a string, want an " +
			"integer",
		`{"list": {}}`:   "list: found an object, want an array",
		`{"name": "x",}`: `not valid JSON: invalid character ',' at start of value (byte 13)`,
		`{name: 1}`:      `not valid JSON: invalid character 'a' in literal null (expecting 'u') (byte 3)`,
		`{"name" "x"}`:   `not valid JSON: invalid character '"' after object name (expecting ':') (byte 9)`,
		"{\"name\": \"x\"\n\"on\": " +
			"true}": `line 2: not valid JSON: invalid character '"' after object value (expecting ',' or '}')`,
		`{"list": [{} {}]}`:            `not valid JSON: invalid character '{' after array element (expecting ',' or ']') (byte 14)`,
		"<!DOCTYPE html>\n<html>\n":    `line 1: not valid JSON: invalid character '<' at start of value`,
		"{\n\"name\": \"x\",\n\"in\":": "line 3: not valid JSON: it ends in the middle",
		"not json":                     `not valid JSON: invalid character 'o' in literal null (expecting 'u') (byte 2)`,
		`{"rate": NaN}`:                `not valid JSON: invalid character 'N' at start of value (byte 10)`,
		"{\"name\": \"a\tb\"}":         `not valid JSON: invalid character '\t' in string (expecting non-control character) (byte 12)`,
	} {
		err := plainjson.Unmarshal([]byte(text), &file{})
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestStrict(t *testing.T) {
	for text, want := range map[string]string{
		"{\n\"nam\": \"x\"}": "line 2: nam: unknown key",
		`{"name": "x"} {}`:   "not valid JSON: invalid character '{' after top-level value (byte 15)",
		`{"name": "x"`:       "not valid JSON: it ends in the middle",
		"":                   "not valid JSON: it is empty",
	} {
		err := plainjson.UnmarshalStrict([]byte(text), &file{})
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
	var f file
	if err := plainjson.UnmarshalStrict([]byte(` {"name": "x"} `), &f); err != nil || f.Name != "x" {
		t.Errorf("%v, %+v", err, f)
	}
}

// TestVersion2 checks the messages for errors returned by encoding/json/v2 directly.
func TestVersion2(t *testing.T) {
	for text, want := range map[string]string{
		"[]":                            "found an array, want an object",
		`{"a": {}, "a": {}}`:            "a: duplicate key",
		"{\n\"a\": {\"count\": \"x\"}}": "line 2: a.count: found a string, want an integer",
		`{"a": {"count": 99999999999999999999}}`: "a.count: found the number 99999999999999999999, " +
			"want an integer",
		`{"a": {"size": 1}}`:      "a.size: unknown key",
		`{"a": {"count": false}}`: "a.count: found true or false, want an integer",
		`{"a": {"by": [1]}}`:      "a.by: found an array, want an object",
		`{"a" 1}`:                 `not valid JSON: invalid character '1' after object name (expecting ':') (byte 6)`,
		`{"a":`:                   "not valid JSON: it ends in the middle",
		`<html>`:                  `not valid JSON: invalid character '<' at start of value (byte 1)`,
	} {
		var to map[string]inside
		err := plainjson.Explain([]byte(text),
			jsonv2.Unmarshal([]byte(text), &to, jsonv2.RejectUnknownMembers(true)))
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestPartsAndOthers checks that errors about a part of a file have no line number, and that other
// errors are unchanged.
func TestPartsAndOthers(t *testing.T) {
	err := plainjson.UnmarshalPart([]byte("{\n\n\"name\": 1}"), &file{})
	if err == nil || err.Error() != "name: found a number, want a string" {
		t.Errorf("got %v", err)
	}
	if _, ok := errors.AsType[*jsonv2.SemanticError](err); !ok {
		t.Errorf("the cause of %v is lost", err)
	}
	other := errors.New("something else")
	if got := plainjson.Explain(nil, other); got != other {
		t.Errorf("got %v", got)
	}
	if got := plainjson.Explain(nil, nil); got != nil {
		t.Errorf("got %v", got)
	}
}

// FuzzExplain checks that no error has an offset outside the text, which would cause a panic, and
// that no message mentions Go types.
func FuzzExplain(f *testing.F) {
	f.Add([]byte(`{"name": 1}`))
	f.Add([]byte("{\n\"in\": {\"by\": [1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var v map[string]jsontext.Value
		for _, err := range []error{plainjson.Unmarshal(text, &file{}),
			plainjson.UnmarshalStrict(text, &file{}), plainjson.Explain(text, jsonv2.Unmarshal(text, &v))} {
			if err != nil && (strings.Contains(err.Error(), " Go ") ||
				strings.Contains(err.Error(), "looking for")) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
