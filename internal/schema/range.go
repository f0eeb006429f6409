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

	"github.com/cage-qat/cage/internal/lists"
)

// Most is the maximum for counts that have no natural limit.
const Most = 1_000_000_000

// Range is the set of values that a key accepts. The zero value accepts everything.
type Range struct {
	Words []string // all possible strings; nil: no such list
	text  string   // in words, after the type: "of at least 1"
	holds func(value any) bool
}

// From accepts integers from low to high, inclusive, or arrays of such integers.
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

// Between accepts numbers from low to high, inclusive, or arrays of such numbers.
func Between(low, high float64) Range {
	return numbers("from "+Decimal(low)+" to "+Decimal(high),
		func(x float64) bool { return x >= low && x <= high })
}

// Below is like [Between] without the upper end.
func Below(low, high float64) Range {
	return numbers("of at least "+Decimal(low)+" and below "+Decimal(high),
		func(x float64) bool { return x >= low && x < high })
}

// Above is like [Between] without the lower end.
func Above(low, high float64) Range {
	return numbers("above "+Decimal(low)+", up to "+Decimal(high),
		func(x float64) bool { return x > low && x <= high })
}

func numbers(text string, holds func(float64) bool) Range {
	return Range{text: text, holds: func(v any) bool { return each(v, holds) }}
}

// OneOf accepts any of the given words, or an array of them.
func OneOf[T ~string](words ...T) Range {
	r := Range{Words: lists.Map(words, func(w T) string { return string(w) })}
	r.holds = func(v any) bool {
		return each(v, func(s string) bool { return slices.Contains(r.Words, s) })
	}
	return r
}

// each reports whether holds is true for a single value, or for each element of a nonempty array.
func each[T any](v any, holds func(T) bool) bool {
	if list, many := v.([]T); many {
		return all(list, holds)
	}
	return holds(v.(T))
}

func all[T any](list []T, holds func(T) bool) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(x T) bool { return !holds(x) })
}

// Anything accepts every string. text continues the description of the string, as in "that names a
// directory".
func Anything(text string) Range { return Range{text: text} }

// NonEmpty accepts every string except the empty one and those listed. text is as in [Anything].
func NonEmpty(text string, but ...string) Range {
	return Range{text: text, holds: func(v any) bool {
		return v != "" && !slices.Contains(but, v.(string))
	}}
}

// Paths accepts one or more nonempty paths.
func Paths(text string) Range {
	return Range{text: text, holds: func(v any) bool {
		return all(v.([]string), func(s string) bool { return s != "" })
	}}
}

// Patterns accepts one or more name patterns.
func Patterns() Range { return Paths("of at least one character each") }

// Matching accepts strings that match a pattern. text is as in [Anything].
func Matching(text string, pattern *regexp.Regexp) Range {
	return Range{text: text, holds: func(v any) bool { return pattern.MatchString(v.(string)) }}
}

var hash = regexp.MustCompile(`^([0-9a-f]{64})?$`)

// Hash accepts SHA-256 hashes and the empty string.
func Hash() Range {
	return Matching("of 64 hexadecimal digits in lower case, or empty", hash)
}

// Finite reports whether a number is neither NaN nor infinite.
func Finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Decimal formats a number with an exponent only if it is very large or small.
func Decimal(x float64) string {
	format := byte('g')
	if a := math.Abs(x); a == 0 || a >= 1e-4 && a < 1e9 {
		format = 'f'
	}
	return strconv.FormatFloat(x, format, -1, 64)
}

// Quoted formats strings as `"a", "b", "c"`.
func Quoted(words []string) string {
	quoted := lists.Map(words, strconv.Quote)
	return strings.Join(quoted, ", ")
}

// Describe describes a raw TOML value for a message.
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

// Clipped shortens untrusted text for a message.
func Clipped(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "..."
}

// maxCompared is the maximum length, in bytes, of the keys that Nearest compares.
const maxCompared = 64

// Nearest returns the known key that was most likely meant by key, or "" if none is similar. It
// ignores case and allows about one wrong letter in three. Of equally near keys, it returns the
// first.
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

// DidYouMean returns a question that suggests the nearest known word, such as `did you mean
// "cpu"?`, or "" if none is near.
func DidYouMean(word string, known []string) string {
	near := Nearest(word, known)
	if near == "" {
		return ""
	}
	return "did you mean " + strconv.Quote(near) + "?"
}

// IsTable reports whether a raw TOML value is a table or a nonempty array of tables.
func IsTable(v any) bool {
	_, one := v.(map[string]any)
	return one || IsTables(v)
}

// IsTables reports whether a raw TOML value is a nonempty array of tables.
func IsTables(v any) bool {
	list, ok := TablesOf(v)
	return ok && len(list) > 0
}

// TablesOf returns the elements of an array of tables, in either TOML notation.
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
