package golden

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Float converts a value to a number; "NaN", "Inf" and "-Inf" are numbers, null is NaN.
func Float(v any) (float64, error) {
	switch v := v.(type) {
	case nil:
		return math.NaN(), nil
	case json.Number:
		return v.Float64()
	case string:
		if x, ok := nonFinite(v); ok {
			return x, nil
		}
	}
	return 0, fmt.Errorf("is %s, want a number", jsonType(v))
}

// Int converts a value to a whole number.
func Int(v any) (int, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("is %s, want a whole number", jsonType(v))
	}
	if i, err := strconv.Atoi(n.String()); err == nil {
		return i, nil
	}
	x, err := n.Float64()
	if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, fmt.Errorf("is %s, want a whole number", n)
	}
	return int(x), nil
}

// Bool converts a value to a truth value.
func Bool(v any) (bool, error) {
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("is %s, want true or false", jsonType(v))
	}
	return b, nil
}

// Text converts a value to a string. For a number it returns its literal, because some
// settings are written either way (a mode is "full" or 128).
func Text(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", fmt.Errorf("is %s, want a string", jsonType(v))
}

// nonFinite reads the strings that stand for numbers which JSON cannot hold.
func nonFinite(s string) (float64, bool) {
	switch s {
	case "NaN":
		return math.NaN(), true
	case "Inf":
		return math.Inf(1), true
	case "-Inf":
		return math.Inf(-1), true
	}
	return 0, false
}

// jsonType names the JSON type of v for error messages.
func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null or absent"
	case bool:
		return "a truth value"
	case json.Number:
		return "the number " + v.String()
	case string:
		return fmt.Sprintf("the string %q", v)
	case []any:
		return "a list"
	}
	return "an object"
}
