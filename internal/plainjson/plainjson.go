// Package plainjson decodes JSON as encoding/json does, with errors for users: the line, the key,
// what was found and what would be right, without Go terms.
package plainjson

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Unmarshal is json.Unmarshal with errors in plain words.
func Unmarshal(text []byte, to any) error { return Explain(text, json.Unmarshal(text, to)) }

// UnmarshalStrict is [Unmarshal], but unknown keys are errors.
func UnmarshalStrict(text []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return Explain(text, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Explain(text, errors.New("something follows the end of the value"))
	}
	return nil
}

// UnmarshalPart is [Unmarshal] for a part of a file. Its errors have no line number, which would be
// relative to the part.
func UnmarshalPart(text []byte, to any) error {
	return Explain(nil, json.Unmarshal(text, to))
}

// Explain rewrites an error of encoding/json, of its version 2 or of a decoder, in plain words.
// text is the whole text, or nil for a part of a file that is known to be JSON. Any other error is
// returned unchanged.
func Explain(text []byte, err error) error {
	if err == nil {
		return nil
	}
	if _, already := errors.AsType[*plain](err); already {
		return err
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &plain{place(text, int(t.Offset)-1, t.Field) + misfit(t.Value, t.Type), err}
	}
	if s, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
		return &plain{place(text, int(s.ByteOffset), dottedKey(s.JSONPointer)) + semantic(s), err}
	}
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(s.Err, jsontext.ErrDuplicateName) {
			at := place(text, int(s.ByteOffset), dottedKey(s.JSONPointer))
			return &plain{at + "the key is there twice; want it once", err}
		}
		return &plain{syntax(text, int(s.ByteOffset), s.Err.Error()), err}
	}
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		return &plain{syntax(text, int(s.Offset)-1, s.Error()), err}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		key, _ := strconv.Unquote(name)
		at := regexp.MustCompile(regexp.QuoteMeta(name) + `\s*:`).FindIndex(text)
		if at == nil {
			at = []int{-1}
		}
		return &plain{place(text, at[0], key) + "unknown key", err}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &plain{syntax(text, len(text), "unexpected end"), err}
	}
	return err
}

type plain struct {
	text  string
	cause error
}

func (p *plain) Error() string { return p.text }
func (p *plain) Unwrap() error { return p.cause }

// place returns the line and the key of a problem. It omits the line if the text has only one.
func place(text []byte, offset int, key string) string {
	var at string
	if bytes.Contains(bytes.TrimRight(text, "\r\n \t"), []byte("\n")) && offset >= 0 {
		at = fmt.Sprintf("line %d: ", 1+bytes.Count(text[:min(offset, len(text))], []byte("\n")))
	}
	if key != "" {
		at += key + ": "
	}
	return at
}

func dottedKey(p jsontext.Pointer) string {
	var parts []string
	for token := range p.Tokens() {
		parts = append(parts, token)
	}
	return strings.Join(parts, ".")
}

func misfit(found string, want reflect.Type) string {
	if words := typeWords(want); words != "" {
		return "found " + article(found) + ", want " + words
	}
	return "found " + article(found) + ", which does not belong here"
}

// article puts an article before a kind of JSON value, which may be followed by a number.
func article(found string) string {
	switch {
	case strings.HasPrefix(found, "number "):
		return "the " + found
	case found == "bool":
		return "true or false"
	case found == "null":
		return found
	case found == "array" || found == "object":
		return "an " + found
	}
	return "a " + found
}

func typeWords(t reflect.Type) string {
	if t == nil {
		return ""
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeWords(t.Elem())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer that is not negative"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return ""
}

func semantic(s *jsonv2.SemanticError) string {
	if errors.Is(s.Err, jsonv2.ErrUnknownName) {
		return "unknown key"
	}
	if s.JSONKind == jsontext.KindInvalid {
		return s.Error()
	}
	found := s.JSONKind.String()
	switch s.JSONKind {
	case jsontext.KindTrue, jsontext.KindFalse:
		found = "bool"
	case jsontext.KindBeginObject:
		found = "object"
	case jsontext.KindBeginArray:
		found = "array"
	case jsontext.KindNumber:
		found = strings.TrimSpace("number " + string(s.JSONValue))
	}
	return misfit(found, s.GoType)
}

func syntax(text []byte, offset int, message string) string {
	const what = "not valid JSON: "
	message = strings.TrimPrefix(message, "jsontext: ")
	switch offset = min(max(offset, 0), len(text)); {
	case text == nil:
		return what + message
	case len(bytes.TrimSpace(text)) == 0:
		return what + "there is nothing"
	case strings.Contains(message, "unexpected end") || strings.Contains(message, "unexpected EOF"):
		return place(text, len(bytes.TrimRight(text, " \t\r\n")), "") + what + "it ends in the middle"
	}
	if line := place(text, offset, ""); line != "" {
		return line + what + message
	}
	return fmt.Sprintf("%s%s (byte %d)", what, message, offset+1)
}
