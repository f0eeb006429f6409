package schema

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// Most is the maximum of counts without a natural limit.
const Most = 1_000_000_000

// Range is the set of accepted values of a key. Its zero value accepts everything.
type Range struct {
	Words []string // all possible strings; nil: no such list
	text  string   // in words, after the type: "of at least 1"
	holds func(value any) bool
}

// From returns the range from low to high, inclusive, for an integer or each integer of an array.
func From(low, high int64) Range {
	text := fmt.Sprintf("from %d to %d", low, high)
	if high == math.MaxInt64 {
		text = fmt.Sprintf("of at least %d", low)
	}
	return Range{text: text, holds: func(v any) bool {
		if list, many := v.([]int); many {
			return all(list, func(n int) bool { return int64(n) >= low && int64(n) <= high })
		}
		return v.(int64) >= low && v.(int64) <= high
	}}
}

// Between returns the range from low to high, inclusive, for a number or for each number
// of an array.
func Between(low, high float64) Range {
	return numbers("from "+Decimal(low)+" to "+Decimal(high),
		func(x float64) bool { return x >= low && x <= high })
}

// Below is [Between] with the upper end excluded.
func Below(low, high float64) Range {
	return numbers("of at least "+Decimal(low)+" and below "+Decimal(high),
		func(x float64) bool { return x >= low && x < high })
}

// Above is [Between] with the lower end excluded.
func Above(low, high float64) Range {
	return numbers("above "+Decimal(low)+", up to "+Decimal(high),
		func(x float64) bool { return x > low && x <= high })
}

func numbers(text string, holds func(float64) bool) Range {
	return Range{text: text, holds: func(v any) bool { return each(v, holds) }}
}

// OneOf returns the range of strings, or of arrays of strings, each of which is one of
// the given words.
func OneOf[T ~string](words ...T) Range {
	r := Range{}
	for _, w := range words {
		r.Words = append(r.Words, string(w))
	}
	r.holds = func(v any) bool {
		return each(v, func(s string) bool { return slices.Contains(r.Words, s) })
	}
	return r
}

// each reports whether a single value, or each element of an array that is not empty, satisfies
// holds.
func each[T any](v any, holds func(T) bool) bool {
	if list, many := v.([]T); many {
		return all(list, holds)
	}
	return holds(v.(T))
}

func all[T any](list []T, holds func(T) bool) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(x T) bool { return !holds(x) })
}

// Anything returns the range of all strings; text says what they mean, as in "that names
// a directory".
func Anything(text string) Range { return Range{text: text} }

// NonEmpty returns the range of all strings except the empty one and those listed.
func NonEmpty(text string, but ...string) Range {
	return Range{text: text, holds: func(v any) bool {
		return v != "" && !slices.Contains(but, v.(string))
	}}
}

// Paths returns the range of one or several paths.
func Paths(text string) Range {
	return Range{text: text, holds: func(v any) bool {
		return all(v.([]string), func(s string) bool { return s != "" })
	}}
}

// Patterns returns the range of one or several name patterns.
func Patterns() Range { return Paths("of at least one character each") }

// Matching returns the range of strings that match a pattern; text says what they mean.
func Matching(text string, pattern *regexp.Regexp) Range {
	return Range{text: text, holds: func(v any) bool { return pattern.MatchString(v.(string)) }}
}

// Hash returns the range of SHA-256 hashes and the empty string.
func Hash() Range {
	hash := regexp.MustCompile(`^([0-9a-f]{64})?$`)
	return Matching("of 64 hexadecimal digits in lower case, or empty", hash)
}

// Finite reports whether a number is neither NaN nor infinite.
func Finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Decimal formats a number for people: with an exponent only if it is very small or large.
func Decimal(x float64) string {
	format := byte('g')
	if a := math.Abs(x); a == 0 || a >= 1e-4 && a < 1e9 {
		format = 'f'
	}
	return strconv.FormatFloat(x, format, -1, 64)
}

// Quoted formats strings as `"a", "b", "c"`.
func Quoted(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, ", ")
}

// Describe describes a raw TOML value, for a message.
func Describe(raw any) string {
	switch v := raw.(type) {
	case string:
		return "the string " + strconv.Quote(Clipped(v, 60))
	case int64:
		return "the integer " + strconv.FormatInt(v, 10)
	case float64:
		s := strings.ToLower(strings.TrimPrefix(Decimal(v), "+"))
		if Finite(v) && !strings.ContainsAny(s, ".e") {
			s += ".0" // TOML distinguishes floats from integers
		}
		return "the float " + s
	case bool:
		return "the boolean " + strconv.FormatBool(v)
	case time.Time:
		return "a date or time"
	case []any:
		if len(v) == 0 {
			return "an empty array"
		}
		return "an array"
	case []map[string]any:
		return "an array of tables"
	case map[string]any:
		return "a table"
	default:
		return fmt.Sprintf("a %T", raw)
	}
}

// Clipped shortens text of unknown length for use in a message.
func Clipped(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "..."
}

// maxCompared is the maximum length of keys that Nearest compares, in bytes.
const maxCompared = 64

// Nearest returns the known key that was most likely meant by key, or "" if none is similar.
// Case is ignored; about one letter in three may differ. Among equally near
// keys, the first is returned.
func Nearest(key string, known []string) string {
	if len(key) > maxCompared {
		return ""
	}
	key = strings.ToLower(key)
	length := utf8.RuneCountInString(key)
	best, limit := "", max(1, (length+1)/3)
	for _, k := range known {
		n := utf8.RuneCountInString(k)
		if n < length-limit || n > length+limit {
			continue // the lengths differ too much
		}
		if d := levenshtein.ComputeDistance(key, strings.ToLower(k)); d <= limit && d < n {
			best, limit = k, d-1
		}
	}
	return best
}

// DidYouMean returns a question that suggests the known word nearest to word, such as
// `did you mean "cpu"?`, or "" if none is near.
func DidYouMean(word string, known []string) string {
	near := Nearest(word, known)
	if near == "" {
		return ""
	}
	return "did you mean " + strconv.Quote(near) + "?"
}

// IsTable reports whether a raw TOML value is a table, or an array of at least one.
func IsTable(v any) bool {
	_, one := v.(map[string]any)
	return one || IsTables(v)
}

// IsTables reports whether a raw TOML value is an array of at least one table.
func IsTables(v any) bool {
	list, ok := TablesOf(v)
	return ok && len(list) > 0
}

// TablesOf returns the tables of an array of tables, in either notation of TOML.
func TablesOf(v any) ([]map[string]any, bool) {
	switch v := v.(type) {
	case []map[string]any:
		return v, true
	case []any:
		out := make([]map[string]any, len(v))
		for i, e := range v {
			table, ok := e.(map[string]any)
			if !ok {
				return nil, false
			}
			out[i] = table
		}
		return out, true
	}
	return nil, false
}
