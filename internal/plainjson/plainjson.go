// Package plainjson decodes JSON like encoding/json, with errors written for users: they name the
// line, the key, what was found and what is accepted, without Go terms.
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
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"
)

// semantics selects the semantics of encoding/json with the errors of encoding/json/v2.
var semantics = jsonv2.JoinOptions(
	json.DefaultOptionsV1(), json.ReportErrorsWithLegacySemantics(false))

// Unmarshal is json.Unmarshal with errors in plain language.
func Unmarshal(text []byte, to any) error {
	return Explain(text, jsonv2.Unmarshal(text, to, semantics))
}

// UnmarshalStrict is [Unmarshal], but unknown keys are errors.
func UnmarshalStrict(text []byte, to any) error {
	return Explain(text, jsonv2.Unmarshal(text, to, semantics, jsonv2.RejectUnknownMembers(true)))
}

// UnmarshalPart is [Unmarshal] for a part of a file. Its errors omit the line number, which would
// be relative to that part.
func UnmarshalPart(text []byte, to any) error {
	return Explain(nil, jsonv2.Unmarshal(text, to, semantics))
}

// ReadFile is [Unmarshal] for a file, which its errors name.
func ReadFile(path vfs.Path, to any) error {
	text, err := path.ReadFile()
	if err == nil {
		if err = Unmarshal(text, to); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return err
}

// Explain rewrites an error of encoding/json/v2 or jsontext in plain language. text is the whole
// document; it may be nil if only a part of a valid document was decoded. Any other error, such as
// one returned by an UnmarshalJSON method, is returned unchanged.
func Explain(text []byte, err error) error {
	if s, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
		at := place(text, int(s.ByteOffset), dottedKey(s.JSONPointer))
		switch {
		case errors.Is(s.Err, jsonv2.ErrUnknownName):
			return &plain{at + "unknown key", err}
		case s.Err != nil && !errors.Is(s.Err, strconv.ErrRange) && !errors.Is(s.Err, strconv.ErrSyntax):
			return s.Err
		}
		return &plain{at + mismatch(s), err}
	}
	s, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case ok && errors.Is(s.Err, jsontext.ErrDuplicateName):
		at := place(text, int(s.ByteOffset), dottedKey(s.JSONPointer))
		return &plain{at + "duplicate key", err}
	case ok:
		return &plain{syntax(text, int(s.ByteOffset), s.Err.Error()), err}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return &plain{syntax(text, len(text), "unexpected EOF"), err}
	}
	return err
}

type plain struct {
	text  string
	cause error
}

func (p *plain) Error() string { return p.text }
func (p *plain) Unwrap() error { return p.cause }

// place describes the line and the key of a problem. It omits the line if the text is a single
// line.
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
	return strings.Join(slices.Collect(p.Tokens()), ".")
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

// mismatch describes a value of the wrong type or range.
func mismatch(s *jsonv2.SemanticError) string {
	found, known := map[jsontext.Kind]string{
		jsontext.KindTrue: "true or false", jsontext.KindFalse: "true or false",
		jsontext.KindNull: "null", jsontext.KindString: "a string", jsontext.KindNumber: "a number",
		jsontext.KindBeginObject: "an object", jsontext.KindBeginArray: "an array",
	}[s.JSONKind]
	if !known {
		return s.Error()
	}
	if s.JSONKind == jsontext.KindNumber && len(s.JSONValue) > 0 {
		found = "the number " + string(s.JSONValue)
	}
	if words := typeWords(s.GoType); words != "" {
		return "found " + found + ", want " + words
	}
	return "found " + found + ", which does not belong here"
}

func syntax(text []byte, offset int, message string) string {
	const what = "not valid JSON: "
	switch offset = min(max(offset, 0), len(text)); {
	case text == nil:
		return what + message
	case len(bytes.TrimSpace(text)) == 0:
		return what + "it is empty"
	case strings.Contains(message, "unexpected EOF"):
		return place(text, len(bytes.TrimRight(text, " \t\r\n")), "") + what + "it ends in the middle"
	}
	if line := place(text, offset, ""); line != "" {
		return line + what + message
	}
	return fmt.Sprintf("%s%s (byte %d)", what, message, offset+1)
}
