package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// File is a golden file. It is read-only and may be shared by parallel subtests.
type File struct {
	Name        string    // name of the algorithm, as stated in the file
	Description string    // one-line description of the content
	Tolerance   Tolerance // the author's tolerance for the values
	// Fields is the whole top-level object, with numbers as [json.Number].
	Fields map[string]any
	// cases are the objects in the file's list of cases. Each has a unique id and no keys except
	// id, params, inputs and expected.
	cases []map[string]any
}

// parseFile parses a golden file. Errors name the wrong key.
func parseFile(data []byte) (*File, error) {
	fields, err := decodeObject(data)
	if err != nil {
		return nil, err
	}
	f := &File{Fields: fields}
	if n, err := toInt(fields["format"]); err != nil || n != 1 {
		return nil, fmt.Errorf("format: is %v, want 1", fields["format"])
	}
	if f.Name, err = toText(fields["name"]); err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	if f.Description, err = toText(fields["description"]); err != nil {
		return nil, fmt.Errorf("description: %w", err)
	}
	if f.Tolerance, err = parseTolerance(fields["tolerance"]); err != nil {
		return nil, fmt.Errorf("tolerance: %w", err)
	}
	if f.cases, err = parseCases(fields["cases"]); err != nil {
		return nil, err
	}
	return f, nil
}

// decodeObject decodes exactly one JSON object. It keeps numbers as literals, so that integers are
// not converted to floats.
func decodeObject(data []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var fields map[string]any
	if err := dec.Decode(&fields); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	if fields == nil {
		return nil, errors.New("not a JSON object: null")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the JSON object")
	}
	return fields, nil
}

func parseTolerance(v any) (Tolerance, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return Tolerance{}, fmt.Errorf(`is %s, want an object {"abs", "rel"}`, jsonType(v))
	}
	abs, err := toFloat(m["abs"])
	if err != nil || !(abs >= 0) {
		return Tolerance{}, fmt.Errorf("abs: is %v, want a number of at least 0", m["abs"])
	}
	rel, err := toFloat(m["rel"])
	if err != nil || !(rel >= 0) {
		return Tolerance{}, fmt.Errorf("rel: is %v, want a number of at least 0", m["rel"])
	}
	return Tolerance{Abs: abs, Rel: rel}, nil
}

// parseCases checks that every case is an object with a unique id and without unknown keys.
func parseCases(v any) ([]map[string]any, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("cases: is %s, want a list", jsonType(v))
	}
	seen := make(map[string]bool, len(list))
	cases := make([]map[string]any, len(list))
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("cases[%d]: is %s, want an object", i, jsonType(item))
		}
		id, err := toText(m["id"])
		if err != nil {
			return nil, fmt.Errorf("cases[%d].id: %w", i, err)
		}
		if seen[id] {
			return nil, fmt.Errorf("cases[%d].id: %q occurs twice", i, id)
		}
		seen[id], m["id"] = true, id // now a string
		for key := range m {
			switch key {
			case "id", "params", "inputs", "expected":
			default:
				return nil,
					fmt.Errorf("cases[%d] (%s): unknown key %q, want id, params, inputs or expected", i, id,
						key)
			}
		}
		cases[i] = m
	}
	return cases, nil
}
